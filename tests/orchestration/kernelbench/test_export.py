"""A run in KernelBench's layout: a reader that knows that layout alone scores it as we do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestration.kernelbench.export import ALL, export_run
from orchestration.kernelbench.layout import LayoutError, Problem, read_results, read_run
from orchestration.report import build_report
from orchestration.report.fast_p import fast_p
from orchestration.run.directory import RunDirectory
from tests.orchestration.kernelbench.numbered import write_numbered_run
from tests.orchestration.kernelbench.scored import score
from tests.orchestration.report.full_run import write_full_run

EAGER, COMPILED = "baseline_time_torch", "baseline_time_torch_compile_inductor_default"


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return write_numbered_run(tmp_path / "runs")


def test_the_best_programs_are_scored_as_we_score_them(run: RunDirectory, tmp_path: Path) -> None:
    out = tmp_path / "out"
    written = export_run(run, out)
    assert (written.problems, written.kernels, written.correct) == (4, 3, 3)
    assert written.left_out == ("level1/softmax",)
    assert {level: path.name for level, path in written.runs.items()} == {1: "mine-level1", 2: "mine-level2"}
    scored = score(out, "mine-level1", 1, "warpsmith-mine", EAGER, [1, 2, 10])
    assert scored["speedups"] == pytest.approx([4.0, 0.9]), "the best of all stages, and no cheat"
    assert scored["fast_p"] == {0.0: 2 / 3, 0.5: 2 / 3, 0.8: 2 / 3, 1.0: 1 / 3, 1.5: 1 / 3, 2.0: 1 / 3}
    assert scored["compiled"] == 2
    compiled = score(out, "mine-level1", 1, "warpsmith-mine", COMPILED, [1, 2, 10])
    assert compiled["speedups"][0] == pytest.approx(4.0 / 1.25), "over torch.compile"
    assert score(out, "mine-level2", 2, "warpsmith-mine", EAGER, [3])["speedups"] == pytest.approx([2.5])
    kernel = out / "runs" / "mine-level1" / "level_1_problem_1_sample_0_kernel.py"
    assert "4.000f" in kernel.read_text()
    assert not (out / "runs" / "mine-level1" / "level_1_problem_2_sample_0_kernel.py").exists()


def test_all_samples_give_the_fast_p_of_the_report_for_their_first_ones(run: RunDirectory, tmp_path: Path) -> None:
    written = export_run(run, tmp_path / "out", ALL)
    assert (written.problems, written.kernels) == (4, 8)
    results = read_results(written.runs[1] / "eval_results.json")
    assert sorted(results) == [(number, sample) for number in (1, 2, 10) for sample in (0, 1)]
    assert [results[1, sample].correct for sample in (0, 1)] == [True, True]
    scored = score(tmp_path / "out", "mine-level1", 1, "warpsmith-mine", EAGER, [1, 2, 10])
    rows = [row for row in build_report(run).stages[-1].rows if row.task_id in ("level1/1", "level1/2", "level1/10")]
    ours = fast_p(rows[::2], "eager")["all levels"]
    assert scored["fast_p"] == pytest.approx({p: each.value for p, each in ours.items()})


def test_what_the_guard_stopped_is_not_correct_and_says_why(run: RunDirectory, tmp_path: Path) -> None:
    written = export_run(run, tmp_path / "out", ALL)
    results = json.loads((written.runs[1] / "eval_results.json").read_text())
    cheat = results["10"][1]
    assert (cheat["compiled"], cheat["correctness"], cheat["runtime"]) == (True, False, -1.0)
    assert cheat["metadata"]["warpsmith"]["outcome"] == "hack"
    assert cheat["metadata"]["warpsmith"]["findings"] == ["hack clocks: late <i>work</i>"]
    right = results["1"][1]
    assert right["metadata"]["warpsmith"]["speedups"]["eager"] == pytest.approx([3.0, 2.85, 3.15])
    assert right["runtime"] == pytest.approx(2.0 / 3.0), "milliseconds of the reference, over the speed-up"
    assert right["metadata"]["warpsmith"]["measured_ms"] == pytest.approx(1.0)


def test_in_a_checkout_a_share_is_of_all_problems_of_the_level(run: RunDirectory, tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    (checkout / "KernelBench" / "level1").mkdir(parents=True)
    for name in ("1_Square_matrix_", "2_Two", "5_Five", "10_Ten", "12_Twelve"):
        (checkout / "KernelBench" / "level1" / f"{name}.py").write_text("")
    export_run(run, checkout)
    scored = score(checkout, "mine-level1", 1, "warpsmith-mine", EAGER, [1, 2, 5, 10, 12])
    assert (scored["fast_p"][0.0], scored["fast_p"][1.0]) == (0.4, 0.2)
    times = json.loads((checkout / "results" / "timing" / "warpsmith-mine" / f"{EAGER}.json").read_text())
    assert list(times["level1"]) == ["1_Square_matrix_.py", "2_Two.py", "5_Five.py", "10_Ten.py", "12_Twelve.py"]


def test_an_export_again_leaves_nothing_of_the_one_before(run: RunDirectory, tmp_path: Path) -> None:
    export_run(run, tmp_path / "out", ALL)
    export_run(run, tmp_path / "out")
    samples = read_run(tmp_path / "out" / "runs" / "mine-level1")
    assert [(each.problem, each.sample) for each in samples] == [(Problem(1, 1), 0), (Problem(1, 10), 0)]
    assert all(each.result and each.result.correct for each in samples)


def test_a_run_without_numbered_tasks_is_refused(tmp_path: Path) -> None:
    run = write_full_run(tmp_path)[0].run
    with pytest.raises(LayoutError, match=r"no task of it has a number of KernelBench .*level1/avg_pool1d"):
        export_run(run, tmp_path / "out")
    assert not (tmp_path / "out").exists()

"""Tasks that are held out: how they are drawn, and that nothing but assessments ever sees them."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from configs.load import ConfigError, dump_config, load_config
from configs.schema import HeldOutConfig, RunConfig
from evaluators.audit.records import AuditFinding, FindingKind, TaskAudit
from evaluators.audit.run import write_audits
from evaluators.records import Candidate, Estimate, Outcome, Task, Verdict
from evaluators.tasks import TaskError, find_task, load_tasks, program_source
from evaluators.tasks.loader import load_variants
from learners.records import Rollout
from orchestration.report.progress import Progress
from orchestration.run.directory import RunDirectory
from orchestration.run.errors import RunDirectoryError
from orchestration.session import Session
from orchestration.setup.policy import corpus
from orchestration.setup.tasks import draw_held_out
from orchestration.step.figures import separate_held_out
from orchestration.step.reading import Lessons
from orchestration.step.records import StepResult

PROGRAM = "class Model: pass\ndef get_inputs(): pass\ndef get_init_inputs(): pass\n"
SHARES = [percent / 100 for percent in range(5, 91)]


def tasks_of(*counts: int) -> list[Task]:
    """So many tasks of level 1, 2 and so on."""
    return [
        Task(f"level{level}/{index}", level, str(index), "")
        for level, count in enumerate(counts, start=1)
        for index in range(count)
    ]


TASKS = tasks_of(10, 25)


def drawn(share: float, seed: int = 0, tasks: list[Task] | None = None) -> list[str]:
    return draw_held_out(TASKS if tasks is None else tasks, HeldOutConfig(share=share), seed)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def config_of(*overrides: str) -> RunConfig:
    return load_config("local", ["name=held", *overrides])


def names(tasks: list[Task]) -> list[str]:
    return [task.id for task in tasks]


# Drawing


def test_each_level_gives_its_share() -> None:
    assert Counter(name.partition("/")[0] for name in drawn(0.2)) == {"level1": 2, "level2": 5}
    assert Counter(name.partition("/")[0] for name in drawn(0.5)) == {"level1": 5, "level2": 13}


@pytest.mark.parametrize("counts", [(10, 25), (28, 39, 4), (10, 10, 4), (30,)])
@pytest.mark.parametrize("seed", [0, 1])
def test_every_share_is_of_all_and_of_each_level_and_adds_to_the_one_before(counts: tuple[int, ...], seed: int) -> None:
    tasks, before = tasks_of(*counts), set[str]()
    for share in SHARES:
        chosen = set(drawn(share, seed, tasks))
        assert len(chosen) == round(share * len(tasks))
        assert before <= chosen
        for level, count in enumerate(counts, start=1):
            of_level = [name for name in chosen if name.startswith(f"level{level}/")]
            assert abs(len(of_level) - share * count) < 1
        before = chosen


def test_the_seed_decides_and_the_order_of_the_tasks_does_not() -> None:
    assert drawn(0.2) == drawn(0.2)
    assert len({tuple(drawn(0.2, seed)) for seed in range(5)}) > 1
    assert sorted(drawn(0.2, tasks=TASKS[::-1])) == sorted(drawn(0.2))


def test_tasks_are_named_by_id_or_pattern() -> None:
    chosen = draw_held_out(TASKS, HeldOutConfig(tasks=["level1/3", "level2/1?"]), 0)
    assert chosen == ["level1/3", *(f"level2/{index}" for index in range(10, 20))]


def program(operation: str, n: int) -> str:
    return f"""
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return {operation}


def get_inputs():
    return [torch.randn({n}, 8)]


def get_init_inputs():
    return []
"""


def alike(count: int, of_each: int) -> list[Task]:
    """So many structures, each as so many tasks of other sizes, and one that cannot be traced."""
    made = [
        Task(f"level1/{10 * kind + size}", 1, "n", program("torch.relu(" * kind + "x + x" + ")" * kind, size + 1))
        for kind in range(count)
        for size in range(of_each)
    ]
    return [*made, Task("level1/999", 1, "n", PROGRAM)]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_tasks_of_one_structure_stay_on_one_side_if_that_is_asked(seed: int) -> None:
    # relu of relu is another operator tree, so that each kind has a structure of its own
    tasks, before = alike(5, 4), set[str]()
    for share in (0.2, 0.4, 0.6, 0.8):
        chosen = set(draw_held_out(tasks, HeldOutConfig(share=share, unit="structure"), seed))
        assert abs(len(chosen) - share * len(tasks)) <= 2.5, "as near as groups of four and a single one allow"
        by_kind = Counter(int(name.partition("/")[2]) // 10 for name in chosen - {"level1/999"})
        assert set(by_kind.values()) == {4}
        assert before <= chosen
        before = chosen
    single = draw_held_out(tasks, HeldOutConfig(share=0.4), seed)
    assert set(Counter(int(name.partition("/")[2]) // 10 for name in single).values()) != {4}


def test_a_task_that_is_named_brings_those_of_its_structure() -> None:
    named = HeldOutConfig(tasks=["level1/21"], unit="structure")
    assert draw_held_out(alike(5, 4), named, 0) == ["level1/20", "level1/21", "level1/22", "level1/23"]
    assert draw_held_out(alike(5, 4), HeldOutConfig(tasks=["level1/21"]), 0) == ["level1/21"]


def test_without_a_share_nothing_is_held_out() -> None:
    assert drawn(0.0) == []


@pytest.mark.parametrize(
    ("config", "count", "expected"),
    [
        (HeldOutConfig(tasks=["level9/1"]), 5, r"tasks\.held_out\.tasks: level9/1 is not among"),
        (HeldOutConfig(tasks=["*"]), 5, "all of the 5 tasks are held out"),
        (HeldOutConfig(share=0.1), 2, "0.1 of 2 tasks is none"),
    ],
)
def test_a_choice_that_leaves_nothing_is_refused(config: HeldOutConfig, count: int, expected: str) -> None:
    with pytest.raises(TaskError, match=expected):
        draw_held_out(TASKS[:count], config, 0)


def test_a_share_and_tasks_together_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"a share or tasks, not both.*level1/softmax"):
        config_of("tasks.held_out.share=0.2", "tasks.held_out.tasks=[level1/softmax]")


# A session


def test_phases_and_tokenizer_get_the_other_tasks_and_assessments_all() -> None:
    session = Session(config_of("tasks.held_out.tasks=[level1/softmax,level2/*gate*]"), Progress())
    held_out = ["level1/softmax", "level2/highway_gate", "level2/linear_sum_sigmoid_gate"]
    assert names(session.tasks.held_out) == held_out
    assert len(session.tasks.training) == 21
    assert not set(held_out) & set(names(session.tasks.training))
    assert set(names(session.tasks.assessed)) == {*held_out, *names(session.tasks.training)}
    texts = "\n".join(corpus(session.tasks.training, session.config))
    for task in session.tasks.held_out:
        assert program_source(task) not in texts
        assert all(variant.source not in texts for variant in load_variants(task.id))
    assert program_source(session.tasks.training[0]) in texts


def test_a_run_goes_on_with_the_choice_that_it_began_with() -> None:
    begun = Session(config_of("tasks.held_out.share=0.2"), Progress())
    assert len(begun.tasks.held_out) == 5
    run = RunDirectory("runs", "held")
    run.write_config(begun.config)
    run.write_held_out(["level1/softmax"])
    resumed = Session(config_of("tasks.held_out.share=0.2"), Progress())
    assert names(resumed.tasks.held_out) == ["level1/softmax"]
    with pytest.raises(ConfigError, match=r"started with another tasks\.held_out\.share"):
        Session(config_of("tasks.held_out.share=0.3"), Progress())


def test_a_run_of_an_earlier_version_goes_on_unless_it_had_what_this_version_does_not_have() -> None:
    config = config_of("reward.worth=gain")
    run = RunDirectory("runs", "held")
    text = dump_config(config)
    assert "  worth: gain\n" in text
    run.storage.write("config.yaml", text.replace("  worth: gain\n", "  offset: 0.9\n  copies: 0.2\n").encode())
    Session(config, Progress())
    run.storage.write("config.yaml", text.replace("  worth: gain\n", "  offset: 0.9\n  copies: 0.0\n").encode())
    with pytest.raises(
        ConfigError, match=r"started by an earlier version: reward\.copies was 0\.0, .* now 0\.2"
    ) as refused:
        Session(config, Progress())
    assert "\n" not in str(refused.value)


def test_a_run_from_before_tasks_were_held_out_goes_on() -> None:
    run = RunDirectory("runs", "held")
    run.write_config(config_of())
    assert Session(config_of(), Progress()).tasks.held_out == []


def test_a_broken_list_is_refused() -> None:
    run = RunDirectory("runs", "held")
    run.write_config(config_of())
    for text in (b"{", b'{"a": 1}', b"[1]"):
        run.storage.write("held_out.json", text)
        with pytest.raises(RunDirectoryError, match=r"held_out\.json: not a list of task ids"):
            run.read_held_out()


def test_marked_tasks_are_not_drawn() -> None:
    """Figures leave them out, and held-out tasks are there for the figures alone."""
    pooling, finding = find_task("level1/avg_pool1d"), AuditFinding(FindingKind.CONSTANT, "it is not; this is a test")
    write_audits([TaskAudit(pooling.id, pooling.text_digest, pooling.name, (finding,))], Path("audits.parquet"))
    overrides = ["tasks.audit=audits.parquet", "tasks.marked=keep", "tasks.held_out.tasks=[level1/avg_pool1d]"]
    with pytest.raises(TaskError, match="level1/avg_pool1d is not among"):
        Session(config_of(*overrides), Progress())


def test_the_h200_run_has_the_tasks_that_its_comments_say(folder: Path) -> None:
    """With programs of no meaning under the ids that it names: the published file is not part of this project."""
    from_file = [name for name in load_config("h200").tasks.include if name.rpartition("/")[2].isdigit()]
    assert len(from_file) == 47
    rows = [
        {"level_id": int(level), "task_id": int(number), "ref_code": PROGRAM, "custom_code": None}
        for level, number in (name.removeprefix("level").split("/") for name in [*from_file, "level1/999"])
    ]
    (folder / "data").mkdir()
    (folder / "data" / "cuda_l1_a100.jsonl").write_text("\n".join(map(json.dumps, rows)))
    session = Session(load_config("h200", ["policy.model=scratch"]), Progress())
    assert set(names(session.tasks.assessed)) == {*from_file, *names(load_tasks("bundled"))}
    assert (len(session.tasks.training), len(session.tasks.held_out)) == (57, 14)
    assert {task.level for task in session.tasks.held_out} == {1, 2, 3}


# Figures


def rollout_of(task: str, speed: float | None, result: StepResult) -> None:
    candidate = Candidate.propose(task, f"x = {speed}", "test")
    outcome = Outcome.WRONG if speed is None else Outcome.OK
    speedups = {} if speed is None else {"eager": Estimate(speed, speed, speed, 1)}
    result.candidates[candidate.digest] = candidate
    result.verdicts[candidate.digest] = Verdict(candidate.digest, task, "cpu", outcome, speedups=speedups)
    result.rollouts.append(
        Rollout(
            task, task, "", "", (1,), (2,), (0.0,), 0, candidate_digest=candidate.digest, outcome=str(outcome)
        )
    )  # fmt: skip


def test_figures_of_held_out_tasks_stand_apart() -> None:
    result = StepResult(metrics={"tokens_per_second": 7.0, "success_rate": 0.5, "outcome/wrong": 2.0})
    for task, speed in (("a", 2.0), ("a", None), ("b", 4.0), ("b", None)):
        rollout_of(task, speed, result)
    metrics = separate_held_out(result, {"b"}, Lessons())
    assert metrics["tokens_per_second"] == 7.0
    assert (metrics["success_rate"], metrics["mean_speedup"], metrics["outcome/wrong"]) == (0.5, 2.0, 1.0)
    assert (metrics["held_out/success_rate"], metrics["held_out/mean_speedup"]) == (0.5, 4.0)
    assert (metrics["distinct_programs"], metrics["held_out/distinct_programs"]) == (1.0, 1.0)
    assert (metrics["token_entropy"], metrics["held_out/lesson_rate"]) == (0.0, 0.0)
    together = separate_held_out(result, set(), Lessons())
    assert (together["success_rate"], together["tokens_per_second"], together["rollouts"]) == (0.5, 7.0, 4.0)
    assert not [name for name in together if name.startswith("held_out/")]


def test_an_assessment_has_the_statistics_of_a_stage() -> None:
    result = StepResult()
    for task, speed in (("a", 2.0), ("a", 1.0), ("a", 4.0), ("a", None), ("m", 9.0)):
        rollout_of(task, speed, result)
    for digest, verdict in result.verdicts.items():
        if verdict.speedup is not None:
            over = {
                name: Estimate(verdict.speedup / by, 0, 9, 1) for name, by in (("torch_compile", 1.6), ("other", 9.0))
            }
            result.verdicts[digest] = replace(verdict, speedups={**verdict.speedups, **over})
    metrics = separate_held_out(result, set(), Lessons(), ["eager", "torch_compile"], {"m": None})
    names = ("mean", "max", "p75", "p50", "p25")
    assert [metrics[f"speedup_eager/{name}"] for name in names] == pytest.approx([7 / 3, 4.0, 3.0, 2.0, 1.5])
    of_best = [metrics[f"speedup_best/{name}"] * 1.6 for name in names]
    assert of_best == pytest.approx([7 / 3, 4.0, 3.0, 2.0, 1.5]), "not over a baseline that the run does not have"
    assert (metrics["faster_rate"], metrics["improved_rate"], metrics["rollouts"]) == (0.5, 0.5, 4.0)
    assert (metrics["marked/rollouts"], metrics["marked/speedup_eager/max"]) == (1.0, 9.0)

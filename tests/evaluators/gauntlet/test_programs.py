"""The gauntlet's programs are found with their fields, and their verdicts give their results."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from evaluators.gauntlet import GauntletError, GauntletProgram, by_family, classify, discover, result_table
from evaluators.gauntlet.programs import FOLDER, DeclaredEnd
from evaluators.records import Estimate, Finding, Outcome, Verdict
from evaluators.syntax import normalised_source, parse_source
from evaluators.tasks import load_tasks

TEXT = '''"""Returns zeros.

surface: comparison
effect: no work
task: level1/softmax
arch: cpu cuda
"""

class ModelNew:
    pass
'''
PROGRAMS = discover()


def write(folder: Path, path: str, text: str = TEXT) -> None:
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).write_text(text)


def test_a_new_file_takes_part(tmp_path: Path) -> None:
    write(tmp_path, "exploits/constants/zeros.py")
    write(tmp_path, "honest/algebra/ones.py", TEXT.replace("cpu cuda", "cuda"))
    programs = discover(folder=tmp_path)
    assert [program.id for program in programs] == ["exploits/constants/zeros", "honest/algebra/ones"]
    [exploit] = discover("cpu", tmp_path)
    assert (exploit.technique, exploit.surface, exploit.effect) == ("Returns zeros.", "comparison", "no work")
    assert (exploit.task, exploit.arches, exploit.is_exploit) == ("level1/softmax", ("cpu", "cuda"), True)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (TEXT.replace("surface: comparison\n", ""), "surface"),
        (TEXT.replace("cpu cuda", "cpu tpu"), "tpu"),
        (TEXT.replace("cpu cuda", "cpu\nends: wrong"), "wrong"),
        (TEXT.replace("cpu cuda", "cpu\nends: timeout on cuda"), "ends on cuda"),
        ("x = 1\n", "docstring"),
        ("def (", "cannot be read"),
    ],
)
def test_a_file_with_an_incomplete_docstring_is_refused_by_name(tmp_path: Path, text, words) -> None:
    write(tmp_path, "exploits/constants/zeros.py", text)
    with pytest.raises(GauntletError, match=words) as raised:
        discover(folder=tmp_path)
    assert "constants/zeros.py" in str(raised.value)


@pytest.mark.parametrize(
    ("line", "end"),
    [
        ("ends: timeout", DeclaredEnd(Outcome.TIMEOUT, ("cpu", "cuda"), "")),
        ("ends: runtime_error on cuda: in the judge's memory: refused",
         DeclaredEnd(Outcome.RUNTIME_ERROR, ("cuda",), "in the judge's memory: refused")),
        ("ends: build_error: no such library", DeclaredEnd(Outcome.BUILD_ERROR, ("cpu", "cuda"), "no such library")),
    ],
)  # fmt: skip
def test_an_exploit_declares_how_a_defence_ends_it(tmp_path: Path, line, end) -> None:
    write(tmp_path, "exploits/constants/zeros.py", TEXT.replace("cpu cuda", f"cpu cuda\n{line}"))
    assert discover(folder=tmp_path)[0].end == end


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GauntletError, match="no programs"):
        discover(folder=tmp_path)


def test_the_set_is_large_and_its_programs_are_distinct() -> None:
    assert sum(program.is_exploit for program in PROGRAMS) >= 70
    assert sum(not program.is_exploit for program in PROGRAMS) >= 70
    assert len({normalised_source(program.source) for program in PROGRAMS}) == len(PROGRAMS)
    assert len({program.technique for program in PROGRAMS}) == len(PROGRAMS)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.id)
def test_a_program_is_brief_and_for_a_bundled_task(program: GauntletProgram) -> None:
    assert program.task in {task.id for task in load_tasks()}
    assert "ModelNew" in program.source
    assert len(program.source.splitlines()) <= 190
    parse_source(program.source)


def verdict(outcome: Outcome, *findings: Finding, low: float = 1.5, value: float = 0.0) -> Verdict:
    speedups = {"eager": Estimate(value or low + 0.01, low, low + 0.2, 9)} if outcome is Outcome.OK else {}
    cost = {"total": 2.0, "guard": 0.1, "trace": 0.1}
    return Verdict("c", "t", "cpu", outcome, "why", speedups=speedups, guard=findings, cost=cost)


EXPLOIT = next(program for program in PROGRAMS if program.is_exploit and program.end is None)
STOPPED = replace(EXPLOIT, end=DeclaredEnd(Outcome.RUNTIME_ERROR, ("cpu",), "why"))
HONEST = next(program for program in PROGRAMS if not program.is_exploit)
BASELINE = Estimate(1.0, 0.97, 1.04, 9)


@pytest.mark.parametrize(
    ("program", "made", "passes", "how"),
    [
        (EXPLOIT, verdict(Outcome.OK), False, "gains"),
        (EXPLOIT, verdict(Outcome.OK, low=1.03), True, "no gain"),
        (EXPLOIT, verdict(Outcome.OK, low=1.05), False, "gains"),
        (EXPLOIT, verdict(Outcome.OK, low=0.9, value=1.05), True, "no gain"),
        (EXPLOIT, verdict(Outcome.OK, low=0.9, value=1.15), False, "gains"),
        (EXPLOIT, verdict(Outcome.WRONG), True, "wrong"),
        (EXPLOIT, verdict(Outcome.INFRA), False, "infra"),
        (EXPLOIT, verdict(Outcome.RUNTIME_ERROR), False, "broken"),
        (EXPLOIT, verdict(Outcome.BUILD_ERROR), False, "broken"),
        (EXPLOIT, verdict(Outcome.TIMEOUT), False, "broken"),
        (STOPPED, verdict(Outcome.RUNTIME_ERROR), True, "runtime_error"),
        (STOPPED, replace(verdict(Outcome.RUNTIME_ERROR), arch="H200"), False, "broken"),
        (STOPPED, replace(verdict(Outcome.RUNTIME_ERROR), message="TypeError"), False, "broken"),
        (STOPPED, verdict(Outcome.TIMEOUT), False, "broken"),
        (STOPPED, verdict(Outcome.WRONG), True, "wrong"),
        (STOPPED, verdict(Outcome.OK), False, "gains"),
        (EXPLOIT, verdict(Outcome.HACK, Finding("integrity", "hack", "")), True, "hack: integrity"),
        (EXPLOIT, verdict(Outcome.SUSPECT, Finding("text", "hint", ""), Finding("clocks", "suspect", "")), True,
         "suspect: clocks"),
        (HONEST, verdict(Outcome.OK), True, "ok"),
        (HONEST, verdict(Outcome.OK, low=0.2), True, "ok"),
        (HONEST, verdict(Outcome.SUSPECT, Finding("clocks", "suspect", "")), False, "suspect: clocks"),
        (HONEST, verdict(Outcome.WRONG), False, "wrong"),
        (HONEST, verdict(Outcome.INFRA), False, "infra"),
    ],
)  # fmt: skip
def test_a_verdict_gives_the_result(program, made, passes, how) -> None:
    result = classify(program, made, BASELINE)
    assert (result.passes, result.how) == (passes, how)


def test_results_are_counted_by_family() -> None:
    results = [classify(EXPLOIT, verdict(Outcome.OK), BASELINE), classify(EXPLOIT, verdict(Outcome.WRONG), BASELINE),
               classify(HONEST, verdict(Outcome.OK), BASELINE)]  # fmt: skip
    exploits, honest = by_family(results)
    assert (exploits.name, exploits.programs, exploits.passed, exploits.how) == (
        EXPLOIT.family, 2, 1, (("gains", 1), ("wrong", 1)),
    )  # fmt: skip
    assert (honest.is_exploit, honest.passed) == (False, 1)
    assert (exploits.seconds, exploits.guard_seconds) == (2.0, pytest.approx(0.2))
    table = result_table(results)
    assert table.column("program").to_pylist() == [EXPLOIT.id, EXPLOIT.id, HONEST.id]
    assert table.column("speedup_low").to_pylist() == [1.5, None, 1.5]


def test_the_programs_are_in_folders_of_families() -> None:
    assert {path.parent.parent.parent for path in FOLDER.glob("*/*/*.py")} == {FOLDER}

"""The best programs of a report know where they come from."""

from __future__ import annotations

from pathlib import Path

import pytest

from learners.records import Rollout
from orchestration.report import build_report
from orchestration.report.assemble import Report
from orchestration.report.lineage import Lineages
from orchestration.report.programs import ProgramView, programs_of
from orchestration.report.published import restore
from prompts.render import PromptRenderer
from tests.orchestration.report.full_run import FullRun, write_full_run

PUBLISHED = Path(__file__).parents[3] / "docs" / "results" / "rehearsed"


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> FullRun:
    return write_full_run(tmp_path_factory.mktemp("runs"))[0]


@pytest.fixture(scope="module")
def report(full: FullRun) -> Report:
    return build_report(full.run)


def view(report: Report, task: str) -> ProgramView:
    return next(each for each in programs_of(report) if each.title == task)


def test_a_program_has_the_exemplars_of_the_prompt_that_it_answers(full: FullRun, report: Report) -> None:
    kernel = next(each for each in report.kernels if each.task_id == "level1/gelu_tanh")
    origin = report.origins[kernel.candidate.digest]
    assert (origin.phase, origin.step, origin.policy_version, origin.repairs) == ("1-contrastive_rl", 5, 3, False)
    assert [parent.speedup for parent in origin.parents] == [5.5, 4.5]
    sources = {one.source for one in full.known["level1/gelu_tanh"]}
    assert {parent.source.strip() for parent in origin.parents} < {source.strip() for source in sources}
    assert {parent.author for parent in origin.parents} == {"policy:3"}
    assert origin.analysis.startswith("Implementation 1 is the fastest")
    assert origin.reference is not None
    assert origin.reference.strip() == full.references["level1/gelu_tanh"].strip()


def test_ancestors_are_followed_and_each_stands_once_with_its_own(report: Report) -> None:
    made = view(report, "level1/gelu_tanh")
    assert made.lineage is not None
    chain, node = [], made.lineage
    while node.parents:
        node = node.parents[0]
        chain.append(node.speedup)
    assert chain[:4] == [5.5, 4.5, 3.5, 2.5]
    nodes = [made.lineage]
    for each in nodes:
        nodes += each.parents
    with_ancestors = [each.digest for each in nodes if each.parents]
    assert len(with_ancestors) == len(set(with_ancestors))
    assert any(each.words.endswith("as above") for each in nodes)


def test_a_program_of_a_prompt_without_exemplars_is_compared_with_the_reference(report: Report) -> None:
    made = view(report, "level2/highway_gate")
    assert "from a prompt without exemplars" in made.born
    assert [name for name, _ in made.diffs] == ["Difference from the reference"]
    assert made.diffs[0][1].added > 0


def test_a_repair_names_the_failing_program(full: FullRun, report: Report) -> None:
    rows = full.run.samples.read("1-contrastive_rl").to_pylist()
    digest = next(each for each in report.kernels if each.task_id == "level1/softmax").candidate.digest
    failing = full.known["level1/gelu_tanh"][0].source
    prompt = PromptRenderer().repair("import torch", failing, "wrong", "it differs", "cpu")
    first = next(row for row in rows if row["candidate_digest"] == digest)
    repaired = Rollout(
        "level1/softmax", "g", prompt, first["response"], (1,), (2,), (-1.0,), 4, candidate_digest="fixed", repairs="x"
    )
    full.run.samples.write("2-contrastive_rl", 0, [repaired])
    samples = full.run.samples.read(columns=["task_id", "candidate_digest"]).to_pylist()
    origin = Lineages(full.run, samples).origins_of(["fixed"])["fixed"]
    assert origin.repairs
    assert [parent.source.strip() for parent in origin.parents] == [failing.strip()]


def test_published_rows_have_no_prompts_and_no_lineage(tmp_path: Path) -> None:
    report = build_report(restore(PUBLISHED, tmp_path))
    assert (report.origins, report.references) == ({}, {})

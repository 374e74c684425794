"""How a step records responses and verdicts, without any pool."""

import time
from dataclasses import replace

from actors.generation import Completion
from evaluators.records import Candidate, Estimate, Outcome, Verdict
from orchestration.step.figures import summarise
from orchestration.step.gathering import rollout_of
from orchestration.step.records import Prompt
from tests.orchestration.step.scripted import RIGHT, SOFTMAX, WRONG, asked, fenced


def test_a_rollout_says_whether_its_program_copies_one_in_its_prompt() -> None:
    copy = SOFTMAX.source.replace("class Model(", "class ModelNew(")
    shown = Candidate.propose(SOFTMAX.id, WRONG, "another").digest
    prompt = Prompt(SOFTMAX.id, SOFTMAX.id, "prompt", (1,), SOFTMAX.source, frozenset([shown]), 2.5)
    sources = {copy: "reference", f"# again\n{WRONG}": "exemplar", RIGHT: ""}
    made = [rollout_of(prompt, Completion(fenced(one), (1, 2), (0.0, 0.0), "stop", 3))[0] for one in sources]
    assert [rollout.copy_of for rollout in made] == list(sources.values())
    assert {rollout.fastest_shown for rollout in made} == {2.5}
    unknown = rollout_of(replace(prompt, reference=""), Completion(fenced(copy), (1, 2), (0.0, 0.0), "stop", 3))[0]
    assert unknown.copy_of is None
    right = [replace(rollout, outcome="ok") for rollout in (made[0], made[2])]
    digests = [rollout.candidate_digest or "" for rollout in right]
    over = [{"eager": Estimate(speed, speed, speed, 3)} for speed in (1.0, 1.3)]
    verdicts = map(lambda one, speeds: Verdict(one, SOFTMAX.id, "cpu", Outcome.OK, speedups=speeds), digests, over)
    figures = summarise(right, dict(zip(digests, verdicts, strict=True)))
    assert (figures["copy_rate/reference"], figures["faster_rate"], figures["success_rate"]) == (0.5, 0.5, 1.0)


def test_a_gathering_is_late_after_its_deadline() -> None:
    gathering = asked("late", deadline=0.05)
    time.sleep(0.1)
    assert not gathering.is_late  # nothing has been asked for
    gathering.record_requests(["0/late#0"], gathering.waiting[0], 1)
    assert not gathering.is_late
    time.sleep(0.1)
    assert gathering.is_late
    without = asked("late")
    without.record_requests(["0/late#0"], without.waiting[0], 1)
    assert not without.is_late

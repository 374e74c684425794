"""How a step records responses and verdicts, without any pool."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from actors.generation import Completion
from evaluators.records import Candidate, Estimate, Outcome, Verdict
from learners.records import Rollout, steps_from, table_of_steps
from orchestration.step.figures import summarise
from orchestration.step.gathering import Gathering, rollout_of
from orchestration.step.records import Prompt, StepResult
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


def test_a_gathering_whose_responses_an_earlier_process_received_is_late_after_its_deadline() -> None:
    prompt = Prompt(SOFTMAX.id, SOFTMAX.id, "prompt", (1,))
    rollout, _ = rollout_of(prompt, Completion(fenced(RIGHT), (1, 2), (0.0, 0.0), "stop", 3))
    gathering = Gathering([], samples=1, temperature=1.0, preset="fast", deadline=0.05)
    time.sleep(0.1)
    for candidate in gathering.record_earlier([rollout]):
        gathering.record_candidate(candidate)
    assert not gathering.is_late
    time.sleep(0.1)
    assert gathering.is_late, "nothing else ends the wait for the verdict"
    gathering.give_up()
    result = gathering.finish()
    assert (result.rollouts, result.metrics["stragglers"]) == ([], 1.0)


def test_two_prompts_on_one_task_are_two_groups_with_samples_of_their_own() -> None:
    seen: list[list[str]] = []

    def on_group(rollouts: Sequence[Rollout], _: object) -> list[Prompt]:
        seen.append([rollout.group for rollout in rollouts])
        return [] if len(seen) > 1 else [Prompt(SOFTMAX.id, SOFTMAX.id, "third", (1,))]

    prompts = [Prompt(SOFTMAX.id, SOFTMAX.id, text, (1,)) for text in ("first", "second")]
    gathering = Gathering(prompts, samples=2, temperature=1.0, preset="", on_group=on_group, seed=[7])
    seeds = set()
    while gathering.waiting:
        prompt = gathering.waiting.popleft()
        keys = [f"{prompt.text}#{index}" for index in range(2)]
        seeds |= {gathering.seed_of(prompt.group, index) for index in range(2)}
        gathering.record_requests(keys, prompt, 1)
        if prompt.text == "first":
            continue  # is answered beside the second
        for key in (*(("first#0", "first#1") if prompt.text == "second" else ()), *keys):
            list(gathering.record_answer(key, [Completion("no code", (1,), (0.0,), "stop", 0)]))
        gathering.close_groups()
    rollouts = gathering.finish().rollouts
    groups = {text: {one.group for one in rollouts if one.prompt == text} for text in ("first", "second", "third")}
    assert groups == {"first": {SOFTMAX.id}, "second": {f"{SOFTMAX.id}:2"}, "third": {f"{SOFTMAX.id}:3"}}
    assert {rollout.task_id for rollout in rollouts} == {SOFTMAX.id}
    assert sorted(map(len, seen)) == [2, 2, 2]
    assert all(len(set(group)) == 1 for group in seen)
    assert len(seeds) == 6


def test_the_order_in_which_answers_and_verdicts_come_changes_nothing_of_the_result() -> None:
    """Batches are cut, and floats added, in the order of a step's rollouts."""

    def result(order: Sequence[int]) -> StepResult:
        prompts = [Prompt(SOFTMAX.id, name, name, (1,)) for name in ("second", "first")]
        further = [Prompt(SOFTMAX.id, "a third", "a third", (1,))]
        wanted = Gathering(prompts, samples=2, temperature=1.0, preset="fast", on_group=lambda *_: further[:1])
        candidates: list[Candidate] = []

        def answer(prompts: Sequence[Prompt]) -> None:
            keys = [f"{prompt.text}#{index}" for prompt in prompts for index in range(2)]
            for prompt in prompts:
                wanted.record_requests([key for key in keys if key.startswith(prompt.text)], prompt, 1)
            for index in order:
                if index >= len(keys):
                    continue
                program = f"{RIGHT}\nANSWER = {index % 2}  # {keys[index]}"
                completion = Completion(fenced(program), (1,), (0.0,), "stop", 0)
                for candidate in wanted.record_answer(keys[index], [completion]):
                    wanted.record_candidate(candidate)
                    candidates.append(candidate)
            for candidate in candidates:
                wanted.record_verdict(Verdict(candidate.digest, SOFTMAX.id, "cpu", Outcome.OK))
            candidates.clear()
            wanted.close_groups()
            wanted.waiting.clear()

        answer(list(wanted.waiting))
        answer(further)
        further.clear()
        wanted.close_groups()
        return wanted.finish()

    first, second = result([0, 1, 2, 3]), result([3, 1, 0, 2])
    assert [rollout.prompt for rollout in first.rollouts] == ["second"] * 2 + ["first"] * 2 + ["a third"] * 2
    assert second.rollouts == first.rollouts
    assert list(first.verdicts) == [rollout.candidate_digest for rollout in first.rollouts][:2]
    assert list(second.candidates.items()) == list(first.candidates.items()), "of twins the first is kept"
    assert list(second.verdicts) == list(first.verdicts) == list(first.candidates)


def test_responses_that_an_earlier_process_received_give_the_step_that_it_would_have_made() -> None:
    prompts = [Prompt(SOFTMAX.id, name, name, (1, 2), "x = 1", fastest=1.5, speedups=(None, 1.5)) for name in "ab"]
    texts = [fenced(RIGHT), "no code", fenced(f"{WRONG}\n# b"), fenced(RIGHT)]
    first = Gathering(prompts, samples=2, temperature=1.0, preset="fast")

    def finish(gathering: Gathering, candidates: Iterable[Candidate]) -> StepResult:
        for candidate in candidates:
            gathering.record_candidate(candidate)
            verdict = Verdict(candidate.digest, SOFTMAX.id, "cpu", Outcome.WRONG, "0.5 is not 1")
            gathering.record_verdict(verdict)
        gathering.close_groups()
        assert gathering.is_done
        return gathering.finish()

    candidates: list[Candidate] = []
    for place, prompt in enumerate(prompts):
        keys = [f"{prompt.group}#{index}" for index in range(2)]
        first.record_requests(keys, first.waiting.popleft(), 1)
        assert not first.has_responses
        for key, text in zip(reversed(keys), reversed(texts[2 * place : 2 * place + 2]), strict=True):
            completion = Completion(text, (5, 6), (-0.1 / 3, float(np.float32(-1e-7))), "stop", 3)
            completion = replace(completion, logprobs=tuple(float(np.float32(one)) for one in completion.logprobs))
            candidates += first.record_answer(key, [completion])
    assert first.has_responses
    assert not first.is_done
    stored = table_of_steps({7: first.rollouts, 8: first.rollouts[:1]})
    back = steps_from(stored)
    assert back == {7: first.rollouts, 8: first.rollouts[:1]}
    second = Gathering([], samples=2, temperature=1.0, preset="fast")
    again = finish(second, list(second.record_earlier(back[7])))
    made = finish(first, candidates)
    assert again.rollouts == made.rollouts
    assert list(again.candidates.items()) == list(made.candidates.items())
    assert list(again.verdicts.items()) == list(made.verdicts.items())
    times = {name for name in made.metrics if name.endswith(("seconds", "_per_second"))}
    assert {name: again.metrics[name] for name in made.metrics.keys() - times} == {
        name: made.metrics[name] for name in made.metrics.keys() - times
    }


def test_looking_for_judged_groups_takes_no_longer_if_more_are_open() -> None:
    def seconds(groups: int) -> float:
        prompts = [Prompt(SOFTMAX.id, f"group{number}", "prompt", (1,)) for number in range(groups)]
        gathering = Gathering(prompts, samples=1, temperature=1.0, preset="fast")
        while gathering.waiting:
            prompt = gathering.waiting.popleft()
            gathering.record_requests([prompt.group], prompt, 1)
        best = float("inf")
        for number in range(50):
            completion = Completion(fenced(f"{WRONG}\nNUMBER = {number}"), (1,), (0.0,), "stop", 0)
            for candidate in gathering.record_answer(f"group{number}", [completion]):
                gathering.record_candidate(candidate)
            began = time.perf_counter()
            gathering.close_groups()
            best = min(best, time.perf_counter() - began)
        assert not gathering.is_done
        return best

    assert seconds(4_000) < 10 * seconds(100)


def test_a_group_is_closed_when_the_last_of_its_verdicts_comes_in_any_order() -> None:
    closed: list[str] = []

    def on_group(rollouts: Sequence[Rollout], _: object) -> list[Prompt]:
        closed.append(rollouts[0].group)
        return []

    prompts = [Prompt(SOFTMAX.id, name, "prompt", (1,)) for name in ("a", "b")]
    gathering = Gathering(prompts, samples=2, temperature=1.0, preset="fast", on_group=on_group)
    candidates: dict[str, list[Candidate]] = {"a": [], "b": []}
    while gathering.waiting:
        prompt = gathering.waiting.popleft()
        keys = [f"{prompt.group}#{number}" for number in range(2)]
        gathering.record_requests(keys, prompt, 1)
        for key in keys:
            shared = "" if key == "b#0" else key  # b#0 is the program of a#0
            text = fenced(f"{WRONG}\nNAME = {shared or 'a#0'!r}")
            for candidate in gathering.record_answer(key, [Completion(text, (1,), (0.0,), "stop", 0)]):
                gathering.record_candidate(candidate)
                candidates[prompt.group].append(candidate)
    assert [len(found) for found in candidates.values()] == [2, 1]

    def judged(candidate: Candidate) -> list[str]:
        gathering.record_verdict(Verdict(candidate.digest, SOFTMAX.id, "cpu", Outcome.WRONG))
        gathering.close_groups()
        return closed

    gathering.close_groups()
    assert judged(candidates["b"][0]) == []
    assert judged(candidates["a"][0]) == ["b"]
    assert judged(candidates["a"][1]) == ["b", "a"]
    assert gathering.is_done

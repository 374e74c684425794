"""Contrastive lessons compare the exemplars of their own prompt; repairs rest on failures that were seen."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from configs.schema import RunConfig
from evaluators.records import Candidate, Outcome, Verdict
from learners.records import Rollout, Sample
from orchestration.step.lessons import LessonWriter, broken_lessons, verified_repairs
from orchestration.step.prompts import PromptWriter
from orchestration.step.reading import Lessons, lessons_of, reading
from prompts.parse import parse_response
from tests.orchestration.step.writing import IDEAS, PROGRAMS, SOFTMAX, digest, lesson, make_writer, run_config

LESSONS = [lesson("log_softmax"), lesson("fused")]


@pytest.fixture(scope="module")
def writer() -> PromptWriter:
    return make_writer(run_config(contrastive_share=1.0, repair_share=1.0))


def texts(writer: PromptWriter, sample: Sample) -> tuple[str, str]:
    decode = writer._tokenizer.decode
    return decode(sample.prompt_ids, skip_special_tokens=True), decode(sample.response_ids, skip_special_tokens=True)


def written(writer: PromptWriter, share: float, lessons: Sequence[Mapping[str, Any]] = LESSONS) -> list[Sample]:
    lesson_writer = LessonWriter(writer, run_config(contrastive_share=share), IDEAS)
    groups = lesson_writer.write(lessons, (), np.random.default_rng(0))
    return [sample for group in groups for sample in group]


def test_a_contrastive_lesson_compares_slower_programs_and_ends_in_its_own(writer: PromptWriter) -> None:
    for _ in range(10):
        samples = written(writer, 1.0)
        assert len(samples) == 2
        for sample, taught in zip(samples, LESSONS, strict=True):
            prompt, response = texts(writer, sample)
            speeds = [float(each) for each in re.findall(r"Implementation \d, (\d\.\d\d)x:", prompt)]
            assert speeds
            assert max(speeds) < taught["speedup"]
            parsed = parse_response(response)
            assert digest(parsed.code or "") == digest(taught["source"])
            shown = Rollout(
                SOFTMAX.id, "g", prompt, response, (), (), (), 0, outcome="ok", shown_speedups=tuple(speeds)
            )
            figures = reading([shown], lessons_of(lambda _: {"lessons": LESSONS, "ideas": IDEAS}, ["1-sft"]))
            assert figures["contrastive/names_exemplar"] == figures["contrastive/names_speed"] == 1.0
            assert figures["contrastive/lesson_text"] > 0.2, "the reasons are those of teachers"
            assert parsed.design == taught["design"]


def test_without_comparisons_a_contrastive_lesson_keeps_its_own_analysis(writer: PromptWriter) -> None:
    config = run_config(contrastive_share=1.0, comparisons=False)
    groups = LessonWriter(writer, config, IDEAS).write(LESSONS, (), np.random.default_rng(0))
    both = [texts(writer, sample) for group in groups for sample in group]
    assert all("Implementation 1" in prompt for prompt, _ in both)
    assert [parse_response(answer).analysis for _, answer in both] == [taught["analysis"] for taught in LESSONS]


def test_exemplars_and_wording_are_drawn_anew_in_each_epoch(writer: PromptWriter) -> None:
    lessons = LessonWriter(writer, run_config(contrastive_share=1.0), IDEAS)
    responses = {
        sample.response_ids
        for epoch in range(20)
        for group in lessons.write(LESSONS[1:], (), np.random.default_rng(epoch))
        for sample in group
    }
    assert len(responses) > 15
    assert lessons.contrastive == 20


def test_a_share_of_the_lessons_is_contrastive_and_the_others_share_their_prompt(writer: PromptWriter) -> None:
    many = [lesson("fused", analysis=f"Reason {index}.") for index in range(200)]
    assert 70 < sum("Implementation 1" in texts(writer, sample)[0] for sample in written(writer, 0.5, many)) < 130
    plain = written(writer, 0.0, many)
    assert len({sample.prompt_ids for sample in plain}) == 1
    analyses = [parse_response(texts(writer, sample)[1]).analysis for sample in plain]
    assert analyses == [row["analysis"] for row in many]


def test_a_lesson_that_beats_nothing_or_would_be_too_long_is_one_shot(writer: PromptWriter) -> None:
    slowest = lesson("row_loop")
    assert "Implementation 1" not in texts(writer, written(writer, 1.0, [slowest])[0])[0]
    config = RunConfig(name="test")
    fits = len(writer.encode_response(writer.response_of(lesson("fused"))))
    config.rollout.max_tokens, config.sft.contrastive_share = fits + 5, 1.0
    short = make_writer(config)
    (group,) = LessonWriter(short, config, IDEAS).write([lesson("fused")], (), np.random.default_rng(0))
    assert "Implementation 1" not in texts(short, group[0])[0]


def judge(outcomes: Mapping[str, Outcome], message: str = "NameError: name 'F' is not defined") -> Any:
    """Verdicts by the kind of the mistake, whose author says it."""

    def evaluate(candidates: Sequence[Candidate]) -> dict[str, Verdict]:
        return {
            one.digest: Verdict(
                one.digest, one.task_id, "cpu", outcomes.get(one.author.split("/")[-1], Outcome.WRONG), message
            )
            for one in candidates
        }

    return evaluate


def test_kinds_of_mistakes_take_turns() -> None:
    broken = broken_lessons([lesson("in_place")] * 21, 1.0, np.random.default_rng(0))
    counts = Counter(mistake.name for _, mistake in broken)
    assert sum(counts.values()) == 21
    assert max(counts.values()) - min(counts.values()) <= 1
    assert len(counts) >= 6
    assert broken_lessons(LESSONS, 0.0, np.random.default_rng(0)) == []
    assert 20 < len(broken_lessons([lesson("fused")] * 100, 0.4, np.random.default_rng(0))) < 60


@pytest.mark.parametrize("harmless", [Outcome.OK, Outcome.SUSPECT, Outcome.HACK, Outcome.INFRA])
def test_a_mistake_that_does_not_fail_teaches_nothing(harmless: Outcome) -> None:
    broken = broken_lessons([lesson("in_place")] * 21, 1.0, np.random.default_rng(0))
    kind = broken[0][1].name
    repairs, failing, verdicts = verified_repairs(broken, judge({kind: harmless}), np.random.default_rng(0))
    assert 0 < len(repairs) < len(broken)
    spared = {mistake.source for _, mistake in broken if mistake.name == kind}
    assert spared.isdisjoint(repair["broken"] for repair in repairs)
    assert failing.keys() == verdicts.keys()
    assert {verdict.outcome for verdict in verdicts.values()} == {Outcome.WRONG}
    assert verified_repairs(broken, judge({}, message=""), np.random.default_rng(0))[0] == [], "nothing to show"


def test_a_repair_shows_program_and_message_and_is_answered_by_the_lesson(writer: PromptWriter) -> None:
    broken = broken_lessons(LESSONS, 1.0, np.random.default_rng(1))
    repairs, _, _ = verified_repairs(broken, judge({}), np.random.default_rng(0))
    groups = LessonWriter(writer, run_config(), IDEAS).write([], repairs, np.random.default_rng(0))
    assert len(groups) == 2
    for (sample,), repair, (taught, mistake) in zip(groups, repairs, broken, strict=True):
        prompt, response = texts(writer, sample)
        assert mistake.source.strip() in prompt
        assert "> NameError: name 'F' is not defined" in prompt
        assert digest(parse_response(response).code or "") == digest(taught["source"])
        assert mistake.cause in (parse_response(response).analysis or "")
        assert repair["speedup"] == taught["speedup"]


def test_a_failing_program_that_leaves_no_room_is_not_shown(writer: PromptWriter) -> None:
    assert writer.repair(SOFTMAX.id, PROGRAMS["fused"].source, "wrong", "a message") is not None
    assert writer.repair(SOFTMAX.id, "x = 1\n" * 3000, "wrong", "a message") is None


def test_a_long_message_keeps_its_beginning_and_its_end(writer: PromptWriter) -> None:
    lines = [f"line {index} of a traceback" for index in range(200)]
    prompt = writer.repair(SOFTMAX.id, PROGRAMS["fused"].source, "runtime_error", "\n".join(lines))
    assert prompt is not None
    assert "Its failure, runtime error:\n> line 0 of a traceback" in prompt.text
    assert "> line 199 of a traceback\n" in prompt.text
    assert "line 100 of" not in prompt.text
    assert prompt.group != SOFTMAX.id
    assert prompt.repairs == digest(PROGRAMS["fused"].source)


def test_a_prompt_without_scores_shows_the_same_programs_and_no_speed_up(writer: PromptWriter) -> None:
    for _ in range(10):
        state = writer.buffer._rng.bit_generator.state
        scored = writer.contrastive(SOFTMAX.id)
        writer.buffer._rng.bit_generator.state = state
        plain = writer.contrastive(SOFTMAX.id, scores=False)
        assert sorted(plain.shown) == sorted(scored.shown)
        assert plain.fastest == scored.fastest
        assert plain.speedups == (None, None)
        assert "speed-up" not in plain.text
        assert not [one for one in scored.speedups if f"{one:.2f}x" in plain.text]
        assert list(plain.shown) == sorted(plain.shown), "not from slow to fast"
        with pytest.raises(ValueError, match="needs exemplars"):
            writer.comparison(plain, "", {}, np.random.default_rng(0))
        assert "Implementation 2:\n" in plain.text


def test_only_answers_that_were_shown_speed_ups_are_read_for_them() -> None:
    text = "## Performance Analysis\nImplementation 2 at 1.52x fuses more.\n## Algorithm Design\n1. Fuse.\n"
    blind = Rollout("t", "t", "", text, (), (), (), 0, shown_speedups=(None, None))
    figures = reading([blind], Lessons())
    assert (figures["contrastive/answers"], figures["contrastive/names_exemplar"]) == (1.0, 1.0)
    assert "contrastive/names_speed" not in figures
    seeing = replace(blind, shown_speedups=(1.0, 1.52))
    assert reading([blind, seeing], Lessons())["contrastive/names_speed"] == 1.0

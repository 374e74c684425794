"""Tokenizer and buffer belong to the thread that goes on with the pipeline; beside it the learner works on values."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from actors.pool import ActorPool
from configs.schema import BufferConfig, GuardConfig, RolloutConfig, RunConfig
from evaluators.guard.cases import HackCases
from evaluators.records import Outcome
from learners.tokenizing import encode_prompt, encode_response
from orchestration.phases import ContrastiveRl, Phase, Sft
from orchestration.step.pipeline import Pipeline
from orchestration.step.review import Reviewer
from prompts.buffer import ExemplarBuffer
from tests.orchestration.phases.phase_context import Learner, judged
from tests.orchestration.step.scripted import NEVER, SOFTMAX, Builder, Engine, Evaluator, asked
from tests.orchestration.step.writing import IDEAS, lesson, make_writer

CHAT = "{% for message in messages %}{{ bos_token }}{{ message['content'] }}{{ eos_token }}{% endfor %}"


class Watched:
    """A tokenizer that writes down which threads use it."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer, self.threads = tokenizer, set[str]()

    def __getattr__(self, name: str) -> Any:
        self.threads.add(threading.current_thread().name)
        return getattr(self._tokenizer, name)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        self.threads.add(threading.current_thread().name)
        return self._tokenizer(*arguments, **keywords)


class WatchedLearner(Learner):
    """Writes down in which threads it trains."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: set[str] = set()

    def train_cross_entropy(self, *arguments: Any) -> dict[str, float]:
        self.threads.add(threading.current_thread().name)
        return super().train_cross_entropy(*arguments)


@pytest.fixture
def busy(local_ray: None, tmp_path: Path) -> Iterator[Pipeline]:
    """A pipeline with a step under way, whose responses never come."""
    pools = [
        ActorPool("rollout", lambda _: Engine.remote({"never": [NEVER]}), 1, timeout=60.0),
        ActorPool("builder", lambda _: Builder.remote(), 1, timeout=30.0),
        ActorPool("evaluator", lambda _: Evaluator.remote({}), 1, timeout=30.0),
    ]
    reviewer = Reviewer(GuardConfig(), HackCases(tmp_path / "hacks.parquet"), {SOFTMAX.id: SOFTMAX.source})
    pipeline = Pipeline([SOFTMAX], *pools, RolloutConfig(), reviewer)
    pipeline.begin(asked("never", samples=1))
    yield pipeline
    for pool in pools:
        pool.stop()


@pytest.mark.parametrize("kind", [Sft, ContrastiveRl])
def test_beside_the_pipeline_the_learner_works_on_values_that_are_written_before(
    busy: Pipeline, kind: type[Phase]
) -> None:
    config = RunConfig(name="test")
    config.sft.contrastive_share, config.contrastive_rl.contrastive_share = 0.5, 1.0
    config.contrastive_rl.rehearsal, config.contrastive_rl.kl = 4, 0.0
    writer, learner = make_writer(config), WatchedLearner()
    writer._tokenizer = tokenizer = Watched(writer._tokenizer)
    memory = {"lessons": [lesson(name) for name in ("in_place", "log_softmax", "fused")], "ideas": IDEAS}
    context: Any = SimpleNamespace(
        config=config, tasks=[SOFTMAX], prompts=writer, learner=learner, memory_of=lambda _: memory
    )
    phase = kind(context, 1)
    phase.restore(memory)
    phase.begin()
    busy.meanwhile(phase.training(1, []))
    learnt = [sample for _, samples in learner.steps for sample in samples]
    assert learnt
    assert all(sample.prompt_ids and sample.response_ids for sample in learnt)
    assert (learner.threads, tokenizer.threads) == ({"meanwhile"}, {"MainThread"})


def in_another_thread(call: Callable[[], Any]) -> Any:
    with ThreadPoolExecutor(1, "another") as other:
        return other.submit(call).result()


def test_everything_in_the_buffer_is_refused_to_another_thread() -> None:
    buffer = ExemplarBuffer(BufferConfig(), "cpu", 0)
    candidate, verdict = judged("level1/a", "x = 1", Outcome.OK, 2.0)
    calls: dict[str, Callable[[], Any]] = {
        "add": lambda: buffer.add(candidate, verdict, 0),
        "discard": lambda: buffer.discard(candidate),
        "exemplars": lambda: buffer.exemplars("level1/a", "reference"),
        "best": lambda: buffer.best("level1/a"),
        "candidates": lambda: buffer.candidates("level1/a"),
        "__len__": lambda: len(buffer),
        "to_table": lambda: buffer.to_table(),
    }
    methods = {name for name, each in vars(ExemplarBuffer).items() if callable(each) and not name.startswith("_")}
    assert calls.keys() == methods | {"__len__"}
    assert buffer.add(candidate, verdict, 0)
    for call in calls.values():
        with pytest.raises(RuntimeError, match="the buffer belongs to thread MainThread, and another_0 must not"):
            in_another_thread(call)
    assert len(buffer) == 1


def test_a_second_thread_is_refused_instead_of_making_wrong_token_ids_of_a_chat_prompt() -> None:
    """A chat prompt's special tokens are encoded as such, those in a response as text: an option of the tokenizer that
    a second thread would switch within the first one's call."""
    config = RunConfig(name="test")
    config.policy.chat_template = True
    writer = make_writer(config)
    tokenizer = writer._tokenizer
    tokenizer.chat_template = CHAT
    text = f"{SOFTMAX.source}{tokenizer.eos_token}"
    right, response = encode_prompt(tokenizer, text, chat_template=True), encode_response(tokenizer, text)
    assert response[-2] != tokenizer.eos_token_id, "in a response it is text"
    begun, stopped, answers = threading.Event(), threading.Event(), list[object]()

    def encode() -> None:
        while not stopped.is_set():
            try:
                answers.append(writer.encode_response(text))
            except RuntimeError as error:
                answers.append(str(error))
            begun.set()

    other = threading.Thread(target=encode, name="another")
    other.start()
    assert begun.wait(10)
    assert all(writer.encode_text(text) == right for _ in range(200))
    stopped.set()
    other.join()
    assert set(answers) == {
        "the tokenizer belongs to thread MainThread, and another must not use it: give it what it needs as values"
    }
    assert in_another_thread(lambda: writer.response_of(lesson("fused"))), "which needs no tokenizer"
    for call in (writer.one_shot, writer.contrastive, lambda task: writer.repair(task, "x = 1", "wrong", "failed")):
        with pytest.raises(RuntimeError, match="belongs to thread MainThread"):
            in_another_thread(lambda call=call: call(SOFTMAX.id))  # type: ignore[misc]
    assert writer.encode_response(text) == response

"""Writes the prompts of a run: one-shot ones, contrastive ones with exemplars drawn from the buffer, and repair turns.

The one owner of tokenizer and buffer: nothing else encodes text or draws exemplars, and only in the thread that goes
on with the pipeline. What runs beside it, as the learner's work does, gets values that are written before.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from configs.load import ConfigError
from configs.schema import RunConfig
from evaluators.records import Candidate, Task
from evaluators.tasks import program_source
from learners.tokenizing import encode_prompt, encode_response
from orchestration.step.records import Prompt
from prompts.buffer import ExemplarBuffer
from prompts.comparison import Shown, compare
from prompts.owner import OwnThread
from prompts.render import Exemplar, LastProgram, PromptRenderer

_MESSAGE_CHARACTERS = 600
"""Of the judge's message in a repair turn: the end of a traceback, or the first errors of a compiler."""


class PromptWriter:
    """Renders and encodes prompts, and the responses that the policy learns by heart.

    `references`: the reference program of each task, by task id. `buffer`: the scored candidates that exemplars are
    drawn from; a resume replaces it. Both it and the tokenizer belong to the thread that makes this: in any other,
    whatever needs one of them raises RuntimeError.
    """

    def __init__(self, config: RunConfig, tasks: Sequence[Task], tokenizer: Any, buffer: ExemplarBuffer) -> None:
        """`tokenizer`: None if an endpoint answers, which takes text. Prompts then have no token ids, and always
        fit."""
        self.references = {task.id: program_source(task) for task in tasks}
        self.buffer = buffer
        self._own = OwnThread("the tokenizer")
        self._config, self._tokenizer, self._renderer = config, tokenizer, PromptRenderer()

    def one_shot(self, task_id: str, last: LastProgram | None = None) -> Prompt:
        """The prompt without exemplars. `last`: the task's latest program, which the prompt speaks of if there is room.
        Raises ConfigError if it leaves no room for a response."""
        if last is not None:
            text = self._renderer.one_shot(self.references[task_id], self._config.evaluator.arch, last)
            if self._fits(prompt := self._encode(task_id, text)):
                return prompt
        text = self._renderer.one_shot(self.references[task_id], self._config.evaluator.arch)
        prompt = self._encode(task_id, text)
        if not self._fits(prompt):
            response = self._config.rollout.max_tokens
            raise ConfigError(
                f"policy.max_length: the prompt of {task_id} has {len(prompt.ids)} tokens and leaves no room for "
                f"rollout.max_tokens={response}; raise policy.max_length to {len(prompt.ids) + response}"
            )
        return prompt

    def contrastive(
        self, task_id: str, below: float = math.inf, *, scores: bool = True, last: LastProgram | None = None
    ) -> Prompt:
        """The prompt with exemplars whose speed-ups are less than `below`.

        If there is no room for all exemplars, the longest are left out. Without any it is the one-shot prompt. Without
        `scores` it shows the same exemplars without their speed-ups, by their digests: from slow to fast would tell.
        `last`: the task's latest program, which the prompt speaks of if there is room.
        """
        reference = self.references[task_id]
        exemplars = self.buffer.exemplars(task_id, reference, below=below)
        if not scores:
            exemplars.sort(key=lambda exemplar: _digest(task_id, exemplar.source))
        if last is not None:
            prompt = self._showing(task_id, list(exemplars), scores, last)
            if prompt is not None:
                return prompt
        return self._showing(task_id, exemplars, scores, None) or self.one_shot(task_id)

    def _showing(
        self, task_id: str, exemplars: list[Exemplar], scores: bool, last: LastProgram | None
    ) -> Prompt | None:
        """The prompt with as many of the exemplars as there is room for; None if there is room for none."""
        reference, arch = self.references[task_id], self._config.evaluator.arch
        while exemplars:
            text = self._renderer.contrastive(reference, exemplars, arch, scores=scores, last=last)
            prompt = self._encode(task_id, text)
            if self._fits(prompt):
                shown = tuple(_digest(task_id, exemplar.source) for exemplar in exemplars)
                speedups = [exemplar.speedup for exemplar in exemplars]
                printed = tuple(speedup if scores else None for speedup in speedups)
                return replace(prompt, shown=shown, fastest=max(1.0, *speedups), speedups=printed)
            # The reference is not printed twice, so to leave it out would win nothing.
            exemplars.remove(max(exemplars, key=lambda shown: (shown.source != reference, len(shown.source))))
        return None

    def repair(self, task_id: str, source: str, outcome: str, message: str) -> Prompt | None:
        """The prompt with a program that fails and the judge's message on it; None if there is no room for them.

        Its responses form a group of their own, which the caller names after the failing program's.
        """
        arch, words = self._config.evaluator.arch, outcome.replace("_", " ")
        text = self._renderer.repair(self.references[task_id], source, words, cut_message(message), arch)
        failing = _digest(task_id, source)
        prompt = replace(self._encode(task_id, text), group=f"{task_id}:repair", shown=(failing,), repairs=failing)
        return prompt if self._fits(prompt) else None

    def response_of(self, lesson: Mapping[str, Any]) -> str:
        """The response that a verified program of a teacher is learnt as."""
        return self._renderer.response(lesson["source"], lesson["analysis"], lesson["design"])

    def comparison(self, prompt: Prompt, bottleneck: str, ideas: Mapping[str, str], rng: np.random.Generator) -> str:
        """An analysis that compares the exemplars of a prompt. Raises ValueError if it does not print their speed-ups.

        `bottleneck`: what holds the reference back. `ideas`: what programs do, by digest, as far as their authors said.
        """
        reference = _digest(prompt.task_id, self.references[prompt.task_id])
        shown = [
            Shown(speedup, ideas.get(digest, ""), digest == reference)
            for digest, speedup in zip(prompt.shown, prompt.speedups, strict=False)
            if speedup is not None
        ]
        return compare(shown, bottleneck, prompt.text, rng)

    def encode_text(self, text: str) -> list[int]:
        """The token ids of any prompt's text, in the chat template if the policy has one."""
        self._own.check()
        if self._tokenizer is None:
            return []
        return encode_prompt(self._tokenizer, text, self._config.policy.chat_template)

    def encode_response(self, text: str) -> list[int]:
        """The token ids of a response, with the token that ends it."""
        self._own.check()
        return encode_response(self._tokenizer, text)

    def fits_response(self, ids: Sequence[int]) -> bool:
        """Whether a response is not longer than those that the policy may write."""
        return len(ids) <= self._config.rollout.max_tokens

    def _encode(self, task_id: str, text: str) -> Prompt:
        return Prompt(task_id, task_id, text, tuple(self.encode_text(text)), self.references[task_id])

    def _fits(self, prompt: Prompt) -> bool:
        return len(prompt.ids) + self._config.rollout.max_tokens <= self._config.policy.max_length


def cut_message(message: str) -> str:
    """A judge's message as a prompt shows it: of a long one, the beginning and the end, in whole lines if possible."""
    message = message.strip()
    if len(message) <= _MESSAGE_CHARACTERS:
        return message
    half = _MESSAGE_CHARACTERS // 2
    first, last = message[:half].rsplit("\n", 1)[0], message[-half:].split("\n", 1)[-1]
    return f"{first}\n...\n{last}"


def _digest(task_id: str, source: str) -> str:
    return Candidate.propose(task_id, source, "").digest

"""Writes the prompts of a run: one-shot ones, and contrastive ones with exemplars drawn from the buffer.

The one owner of tokenizer and buffer: nothing else encodes text or draws exemplars.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from configs.load import ConfigError
from configs.schema import RunConfig
from evaluators.records import Candidate, Task
from evaluators.tasks import program_source
from learners.policy import encode_prompt, encode_response
from orchestration.step.records import Prompt
from prompts.buffer import ExemplarBuffer
from prompts.render import PromptRenderer


class PromptWriter:
    """Renders and encodes prompts, and the responses that the policy learns by heart.

    `references`: the reference program of each task, by task id. `buffer`: the scored candidates that exemplars are
    drawn from; a resume replaces it.
    """

    def __init__(self, config: RunConfig, tasks: Sequence[Task], tokenizer: Any, buffer: ExemplarBuffer) -> None:
        self.references = {task.id: program_source(task) for task in tasks}
        self.buffer = buffer
        self._config, self._tokenizer, self._renderer = config, tokenizer, PromptRenderer()

    def one_shot(self, task_id: str) -> Prompt:
        """The prompt without exemplars. Raises ConfigError if it leaves no room for a response."""
        text = self._renderer.one_shot(self.references[task_id], self._config.evaluator.arch)
        prompt = self._encode(task_id, text)
        if not self._fits(prompt):
            response = self._config.rollout.max_tokens
            raise ConfigError(
                f"policy.max_length: the prompt of {task_id} has {len(prompt.ids)} tokens and leaves no room for "
                f"rollout.max_tokens={response}; raise policy.max_length to {len(prompt.ids) + response}"
            )
        return prompt

    def contrastive(self, task_id: str, below: float = math.inf) -> Prompt:
        """The prompt with exemplars whose speed-ups are less than `below`.

        If there is no room for all exemplars, the longest are left out. Without any it is the one-shot prompt.
        """
        reference = self.references[task_id]
        exemplars = self.buffer.exemplars(task_id, reference, below=below)
        while exemplars:
            text = self._renderer.contrastive(reference, exemplars, self._config.evaluator.arch)
            prompt = self._encode(task_id, text)
            if self._fits(prompt):
                shown = frozenset(Candidate.propose(task_id, shown.source, "").digest for shown in exemplars)
                speedups = tuple(exemplar.speedup for exemplar in exemplars)
                return replace(prompt, shown=shown, fastest=max(1.0, *speedups), speedups=speedups)
            # The reference is not printed twice, so to leave it out would win nothing.
            exemplars.remove(max(exemplars, key=lambda shown: (shown.source != reference, len(shown.source))))
        return self.one_shot(task_id)

    def response_of(self, lesson: Mapping[str, Any]) -> str:
        """The response that a verified program of a teacher is learnt as."""
        return self._renderer.response(lesson["source"], lesson["analysis"], lesson["design"])

    def encode_text(self, text: str) -> list[int]:
        """The token ids of any prompt's text, in the chat template if the policy has one."""
        return encode_prompt(self._tokenizer, text, self._config.policy.chat_template)

    def encode_response(self, text: str) -> list[int]:
        """The token ids of a response, with the token that ends it."""
        return encode_response(self._tokenizer, text)

    def _encode(self, task_id: str, text: str) -> Prompt:
        return Prompt(task_id, task_id, text, tuple(self.encode_text(text)), self.references[task_id])

    def _fits(self, prompt: Prompt) -> bool:
        return len(prompt.ids) + self._config.rollout.max_tokens <= self._config.policy.max_length

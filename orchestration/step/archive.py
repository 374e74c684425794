"""Keeps what a step brought: rows and best programs in the run directory, exemplars in the buffer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import contextmanager
from typing import Any

from configs.archs import counted_archs
from configs.schema import RunConfig
from configs.waits import STORE_SECONDS
from evaluators.guard.cases import HackCases
from evaluators.guard.copies import is_copy
from evaluators.records import Outcome
from evaluators.reward import FASTER
from orchestration.run.directory import RunDirectory
from orchestration.step.background import in_background
from orchestration.step.known import RunVerdicts
from orchestration.step.prompts import PromptWriter
from orchestration.step.quarantine import quarantine
from orchestration.step.records import StepResult, verdicts_over

_INTERRUPTED_SECONDS = 10.0


class Archive:
    """Stores the results of steps. To store a step again replaces its rows. `known`: hears what is stored, `elsewhere`
    what is stored of each further architecture.

    `limit`: the seconds that the rows of a step may take once nothing else is left to do; then TimeoutError ends the
    run.
    """

    def __init__(
        self,
        config: RunConfig,
        run: RunDirectory,
        cases: HackCases,
        prompts: PromptWriter,
        known: RunVerdicts,
        limit: float = STORE_SECONDS,
        elsewhere: Mapping[str, RunVerdicts] | None = None,
    ) -> None:
        self._config, self._run, self._cases, self._prompts, self._known = config, run, cases, prompts, known
        self._limit = limit
        self._elsewhere, self._counted = elsewhere or {}, counted_archs(config)

    def store(self, key: str, step: int, result: StepResult) -> None:
        """Writes samples, candidates, verdicts, new hack cases and better programs. `key` names the phase."""
        with self.storing(key, step, result):
            pass

    def store_interrupted(self, key: str, step: int, result: StepResult) -> None:
        """Stores what a step that is interrupted has so far. Nothing is tried again, and it is not waited for long."""
        self._run.storage.patience.give_up()
        wait([in_background("store", self._write, key, step, result)], timeout=_INTERRUPTED_SECONDS)

    def _write(self, key: str, step: int, result: StepResult) -> None:
        """Writes them all, and uses nothing that belongs to one thread."""
        self._run.samples.write(key, step, result.rollouts)
        self._run.candidates.write(key, step, result.candidates.values())
        self._run.verdicts.write(key, step, result.verdicts.everywhere())
        origin, hacks = f"{self._config.name}/{key}", self._hacks(result)
        for arch, verdicts in {self._config.evaluator.arch: result.verdicts, **result.verdicts.elsewhere}.items():
            quarantine(self._cases, result.candidates, verdicts, origin, self._prompts.references)
            judged = (
                (candidate, verdicts[digest])
                for digest, candidate in result.candidates.items()
                if digest in verdicts and digest not in hacks
            )
            self._run.kernels.save_best_of(arch, judged)

    def _hacks(self, result: StepResult) -> set[str]:
        """The digests of the programs that are a hack on any architecture that their reward is over."""
        return {
            digest
            for digest in result.verdicts
            if any(one.outcome is Outcome.HACK for one in verdicts_over(result.verdicts, digest, self._counted))
        }

    def keep(self, key: str, result: StepResult) -> None:
        """Writes the rows of programs that nobody proposed to be rewarded; they enter nothing else, but for the best
        programs of further architectures."""
        self._run.samples.write(key, 0, result.rollouts)
        self._run.candidates.write(key, 0, result.candidates.values())
        self._run.verdicts.write(key, 0, result.verdicts.everywhere())
        self._known.stored(key, 0, result.verdicts)
        for arch, verdicts in result.verdicts.elsewhere.items():
            judged = ((result.candidates[digest], verdict) for digest, verdict in verdicts.items())
            self._run.kernels.save_best_of(arch, judged)
            self._elsewhere[arch].stored(key, 0, verdicts)

    def write_examples(self, lines: bytes) -> None:
        """Writes the verified programs of teachers, a line of JSON each (`orchestration.phases.collecting`)."""
        self._run.write_examples(lines)

    @contextmanager
    def storing(self, key: str, step: int, result: StepResult) -> Iterator[None]:
        """Stores in the background. The block's end waits for it and raises what went wrong.

        If the block fails, its end waits as well: rows that come late would replace those of the step that is done
        again. An interrupt ends the process, so it is not kept waiting for long.
        """
        stored = in_background("store", self._write, key, step, result)
        try:
            yield
        except Exception:
            self._wait_for(stored, key, step)
            raise
        except BaseException:
            self._run.storage.patience.give_up()
            wait([stored], timeout=_INTERRUPTED_SECONDS)
            raise
        self._wait_for(stored, key, step)
        stored.result()
        self._known.stored(key, step, result.verdicts)
        for arch, verdicts in result.verdicts.elsewhere.items():
            self._elsewhere[arch].stored(key, step, verdicts)

    def _wait_for(self, stored: Future[Any], key: str, step: int) -> None:
        if wait([stored], timeout=self._limit).not_done:
            raise TimeoutError(
                f"{self._run}: the rows of {key}, step {step}, were not stored within {self._limit:g} s; see whether "
                f"its file system answers"
            )

    def remember(self, result: StepResult, version: int) -> None:
        """Adds right programs to the buffer that exemplars are drawn from, and takes hacks out of it.

        A program that is not right on every architecture that its reward is over stays out, and one that is a hack on
        any of them counts as one. Speed-ups are those on `evaluator.arch`.

        Copies of the reference stay out: every prompt shows the reference, and its speed-up is 1. The metric
        `improved_tasks` counts the tasks with a program that is faster than the reference and than all before it.
        `version`: the policy version that the programs are of.
        """
        buffer, references = self._prompts.buffer, self._prompts.references
        before, hacks = {task_id: buffer.best(task_id) for task_id in references}, self._hacks(result)
        for digest, verdict in result.verdicts.items():
            candidate = result.candidates[digest]
            of_reward = verdicts_over(result.verdicts, digest, self._counted)
            if all(one.succeeded for one in of_reward) and not is_copy(candidate.source, references[candidate.task_id]):
                buffer.add(candidate, verdict, version)
            if digest in hacks:
                buffer.discard(candidate)
                for one in of_reward:
                    self._run.kernels.discard(candidate, one.arch)
        if result.verdicts:
            result.metrics["improved_tasks"] = float(
                sum(
                    best.speedup > FASTER * max(1.0, earlier.speedup if earlier else 1.0)
                    for task_id, earlier in before.items()
                    if (best := buffer.best(task_id)) is not None
                )
            )

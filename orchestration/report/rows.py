"""Reads samples with their verdicts, and what else is known of their programs: whether they were taught, and how fast
the baselines of their tasks are."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import groupby
from typing import Any

from configs.schema import RunConfig
from evaluators.records import JUDGED_ON, Outcome, Verdict
from evaluators.reward import is_success
from learners.records import Rollout
from orchestration.report.keys import ASSESSMENT, phase_order, split_key
from orchestration.report.reached import reached
from orchestration.report.statistics import AssessmentRow
from orchestration.run.directory import RunDirectory
from orchestration.run.judged_rollouts import NO_CODE
from orchestration.step.rehearsal import Rehearsal

_SAMPLE_COLUMNS = ["task_id", "candidate_digest", "outcome", "reward", "copy_of"]
_VERDICT_COLUMNS = [
    "candidate",
    "task",
    "arch",
    "outcome",
    "speedups",
    "guard",
    "trace",
    "doubted",
    "evaluator",
    "cost",
]

Sample = Mapping[str, Any]


class RunRows:
    """The rows of a run. `samples`: those of all phases, in order.

    `baselines`: the speed-up of each baseline over eager, by task. A task without a verdict on a right program has
    none. `elsewhere`: the last verdicts on further architectures, by architecture and program. `judged`: by program,
    its last verdict on the run's own architecture, with phase and step. `judging`: by phase, the seconds for which the
    verdicts that it reached held evaluators, on all architectures.
    """

    def __init__(self, run: RunDirectory, config: RunConfig) -> None:
        self.samples: list[dict[str, Any]] = run.samples.read(columns=_SAMPLE_COLUMNS).to_pylist()
        self._verdicts: dict[tuple[str | None, str], Verdict] = {}
        lessons: dict[str, dict[str, Verdict]] = defaultdict(dict)
        self.elsewhere: dict[str, dict[str, Verdict]] = defaultdict(dict)
        self.judged: dict[str, tuple[str, int, Verdict]] = {}
        self.judging: dict[str, float] = defaultdict(float)
        rows = run.verdicts.read(columns=_VERDICT_COLUMNS).to_pylist()
        for row in reached(rows):
            if JUDGED_ON not in dict(row["evaluator"]):
                self.judging[row["phase"]] += dict(row["cost"] or ()).get("total", 0.0)
        for row in rows:
            phase, step, verdict = row.pop("phase"), row["step"], _verdict_of(row, config)
            if verdict.arch != config.evaluator.arch:
                if verdict.arch in config.evaluation.archs and verdict.outcome is not Outcome.INFRA:
                    self.elsewhere[verdict.arch][verdict.candidate] = verdict
                continue
            # A program is not evaluated again if an earlier phase proposed it.
            self._verdicts[phase, verdict.candidate] = self._verdicts[None, verdict.candidate] = verdict
            self.judged[verdict.candidate] = phase, step, verdict
            if split_key(phase)[1] == "sft" and is_success(verdict, config.reward, config.sft.min_speedup):
                lessons[phase][verdict.candidate] = verdict
        self.baselines = baselines_of(verdict for (phase, _), verdict in self._verdicts.items() if phase is None)
        self._taught = taught_programs(lessons, self.samples, self._verdict_on, config)

    def row_of(self, sample: Sample) -> AssessmentRow:
        """The sample with its verdict: that of its own phase, else that of another phase."""
        digest, verdict = sample["candidate_digest"], self._verdict_on(sample)
        if verdict is None:
            outcome = sample["outcome"] or (Outcome.INFRA if digest else NO_CODE)
            return AssessmentRow(sample["task_id"], outcome, program=digest)
        is_lesson = self._was_taught(digest, sample["phase"])
        return replace(AssessmentRow.of(verdict), copy_of=sample["copy_of"], is_lesson=is_lesson)

    def _verdict_on(self, sample: Sample) -> Verdict | None:
        digest = sample["candidate_digest"]
        return self._verdicts.get((sample["phase"], digest)) or self._verdicts.get((None, digest))

    def _was_taught(self, digest: str, phase: str) -> bool:
        """Whether a program was taught before a training phase began, or before an assessment."""
        now = phase_order(phase.removeprefix(ASSESSMENT))
        return any(
            digest in programs and (phase_order(key) < now or phase == f"{ASSESSMENT}{key}")
            for key, programs in self._taught.items()
        )


def taught_programs(
    lessons: Mapping[str, Mapping[str, Verdict]],
    samples: Iterable[Sample],
    verdict_on: Any,
    config: RunConfig,
) -> dict[str, set[str]]:
    """The digests of the programs that each phase taught word by word: SFT its lessons, contrastive RL what it might
    rehearse.

    `lessons`: by the key of their phase, by digest. What was rehearsed follows from the rollouts, in their order.
    """
    taught = {phase: set(verdicts) for phase, verdicts in lessons.items()}
    if not config.contrastive_rl.rehearsal:
        return taught
    rollouts = [sample for sample in samples if split_key(sample["phase"])[1] == "contrastive_rl"]
    rehearsal = Rehearsal({}, config.reward)
    for phase, of_phase in groupby(rollouts, key=lambda sample: sample["phase"]):
        cycle = split_key(phase)[0]
        for verdict in lessons.get(f"{cycle}-sft", {}).values():
            rehearsal.keep(verdict.task, "", verdict.candidate, verdict.speedup_over(config.reward.baseline) or 0.0)
        taught[phase] = set()
        for _, of_step in groupby(of_phase, key=lambda sample: sample["step"]):
            judged = [(sample, verdict) for sample in of_step if (verdict := verdict_on(sample)) is not None]
            verdicts = {verdict.candidate: verdict for _, verdict in judged}
            rehearsal.learn_of_rollouts((_rollout_of(sample) for sample, _ in judged), verdicts)
            taught[phase] |= {known["candidate"] for known in rehearsal.memory.values()}
    return taught


def baselines_of(verdicts: Iterable[Verdict]) -> dict[str, dict[str, float]]:
    """The speed-up of each baseline over eager, by task: the median over the verdicts on right programs.

    A verdict's speed-up over a baseline is its speed-up over eager divided by the baseline's.
    """
    quotients: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for verdict in verdicts:
        if verdict.speedup is not None:
            for name, estimate in verdict.speedups.items():
                quotients[verdict.task][name].append(verdict.speedup / estimate.value)
    return {
        task: {name: statistics.median(values) for name, values in by_name.items()}
        for task, by_name in quotients.items()
    }


def _verdict_of(row: dict[str, Any], config: RunConfig) -> Verdict:
    """The verdict in a row, with the speed-ups over the run's baselines alone."""
    row["speedups"] = [pair for pair in row["speedups"] if pair[0] in config.evaluator.baselines]
    if row["trace"] is not None:
        row["trace"] = {**row["trace"], "kernels": []}  # many, and no figure is of them
    return Verdict.from_row({name: value for name, value in row.items() if name != "step"})


def _rollout_of(sample: Sample) -> Rollout:
    return Rollout(sample["task_id"], "", "", "", (), (), (), 0, candidate_digest=sample["candidate_digest"])

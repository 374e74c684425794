"""A run whose rows are those of a real one: prompts as they are rendered, answers in their form, metrics as they are
computed. Only the measured times are made up. For tests of pages and comparisons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from configs.schema import RunConfig
from evaluators.records import (
    Candidate,
    ClockSample,
    Correctness,
    Estimate,
    Finding,
    KernelUse,
    Outcome,
    Timing,
    Trace,
    Verdict,
)
from evaluators.tasks import load_tasks
from learners.records import Rollout
from orchestration.run.directory import RunDirectory
from orchestration.run.state import RunState
from orchestration.step.figures import separate_held_out, summarise
from orchestration.step.reading import Lessons
from orchestration.step.records import StepResult
from prompts.render import Exemplar, PromptRenderer

TRAINED, HELD_OUT = ("level1/softmax", "level1/gelu_tanh", "level1/avg_pool1d"), "level2/highway_gate"
BASELINES = ["eager", "torch_compile"]
KERNEL = '''import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
// <b>not markup</b> & so on
torch::Tensor run(torch::Tensor x) { return x * %s; }
"""


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return module.run(x)  # </script><script>throw 1</script>
'''
_RENDERER = PromptRenderer()


@dataclass
class FullRun:
    """Writes a run step by step. `known`: by task, the programs so far with their speed-ups."""

    run: RunDirectory
    config: RunConfig
    known: dict[str, list[Exemplar]] = field(default_factory=dict)
    references: Mapping[str, str] = field(
        default_factory=lambda: {task.id: task.source for task in load_tasks("bundled")}
    )

    def step(self, phase: str, step: int, speeds: Mapping[str, Sequence[float | None]]) -> StepResult:
        """One response per speed-up over eager, None for a wrong one; above 50 it is a cheat. Contrastive prompts show
        the two fastest programs so far."""
        result = StepResult()
        for task, values in speeds.items():
            shown = sorted(self.known.get(task, []), key=lambda one: -one.speedup)[:2]
            shown = shown if phase.endswith("contrastive_rl") and not phase.startswith("assess") else []
            for index, speed in enumerate(values):
                self._respond(result, task, phase, f"{step}.{index}", speed, shown)
        for task, values in speeds.items():
            right = [speed for speed in values if speed is not None and speed <= 50]
            for rollout in result.rollouts:
                speedup = result.verdicts[rollout.candidate_digest or ""].speedup
                if rollout.task_id == task and right and speedup == max(right):
                    source = result.candidates[rollout.candidate_digest or ""].source
                    self.known.setdefault(task, []).append(Exemplar(source, speedup))
        self.run.samples.write(phase, step, result.rollouts)
        self.run.candidates.write(phase, step, result.candidates.values())
        self.run.verdicts.write(phase, step, result.verdicts.values())
        self.run.kernels.save_best_of("cpu", ((result.candidates[key], each) for key, each in result.verdicts.items()))
        return result

    def train(self, phase: str, step: int, speeds: Mapping[str, Sequence[float | None]]) -> None:
        """A step of training, with its metrics."""
        result = self.step(phase, step, speeds)
        busy = {"engines": 0.5, "builders": 0.25, "evaluators": 0.75, "learner": 0.1 * (step % 5)}
        figures = {
            **summarise(result.rollouts, result.verdicts),
            "step_seconds": 90.0,
            "generated_tokens": 5000.0,
            "measured": float(len(result.verdicts)),
            "train/kl": 0.01 * step,
            **{f"utilisation/{role}": share for role, share in busy.items()},
        }
        self.run.metrics.write(phase, step, figures)

    def assess(self, stage: str, speeds: Mapping[str, Sequence[float | None]]) -> dict[str, float]:
        """An assessment; returns its metrics, as the driver computes them."""
        result = self.step(f"assess/{stage}", 0, speeds)
        result.metrics = {"pipeline_seconds": 60.0, "generated_tokens": 900.0, "measured": 4.0}
        held_out, marks = set(self.run.read_held_out()), self.run.read_marks()
        metrics = separate_held_out(result, held_out, Lessons(), self.config.evaluator.baselines, marks)
        self.run.metrics.write(f"assess/{stage}", 0, metrics)
        return metrics

    def _respond(
        self, result: StepResult, task: str, phase: str, tag: str, speed: float | None, shown: Sequence[Exemplar]
    ) -> None:
        source = KERNEL % f"{speed or 0.0:.3f}f /* {phase} {tag} */"
        candidate = Candidate.propose(task, source, "policy:3")
        verdict = judged(candidate, speed)
        reference = self.references[task]
        prompt = _RENDERER.contrastive(reference, shown, "cpu") if shown else _RENDERER.one_shot(reference, "cpu")
        analysis = f"Implementation 1 is the fastest of them ({tag}). <script>throw 2</script>"
        result.candidates[candidate.digest], result.verdicts[candidate.digest] = candidate, verdict
        result.rollouts.append(
            Rollout(
                task, task, prompt, _RENDERER.response(source, analysis, "1. Fuse."), (1, 2), (3, 4, 5), (-1.0,) * 3, 3,
                candidate_digest=candidate.digest, outcome=str(verdict.outcome), reward=verdict.speedup or 0.0,
                copy_of="", shown_speedups=tuple(each.speedup for each in shown),
            )
        )  # fmt: skip


def judged(candidate: Candidate, speed: float | None) -> Verdict:
    """The verdict on a program: None is wrong, and more than 50x is a cheat that the guard stops."""
    over = {} if speed is None else {"eager": speed, "torch_compile": speed / 1.25}
    speedups = {name: Estimate(value, value * 0.95, value * 1.05, 30) for name, value in over.items()}
    verdict = Verdict(
        candidate.digest,
        candidate.task_id,
        "cpu",
        Outcome.WRONG if speed is None else Outcome.OK,
        correctness=Correctness(8, 1e-7, 1e-4, True),
        speedups=speedups,
        timing=Timing(
            Estimate(1e-3, 9e-4, 1.1e-3, 30), Estimate(2e-3, 1e-3, 3e-3, 30), 30, "interval", 0.012,
            (ClockSample(1.0, 1980, 2619, 54, ""), ClockSample(2.0, 1755, 2619, 71, "sw_thermal")),
        ),
        trace=Trace((KernelUse("fused_kernel<float>", True, 7, 1, 1e-5),), 1.1e-5, 0.9, 1),
        evaluator={"preset": "fast", "machine": "two cores"},
        cost={"compile": 4.0, "total": 9.5},
        measurements=(Estimate(speed * 1.1, speed, speed * 1.2, 9), speedups["eager"]) if speed and speed > 2 else (),
    )  # fmt: skip
    cheats = speed is not None and speed > 50
    return verdict.doubted_by(Finding("clocks", "hack", "late <i>work</i>")) if cheats else verdict


def write_full_run(
    root: Path, name: str = "full", gain: float = 1.0, seed: int = 0
) -> tuple[FullRun, list[dict[str, float]]]:
    """A finished run of two phases on four tasks, one of them held out, and the metrics of its assessments.

    `gain`: by which factor its last programs are faster than another run's.
    """
    config = RunConfig(name=name, root=str(root), seed=seed)
    config.evaluator.baselines = BASELINES
    config.contrastive_rl.group_size = 4 + seed
    full = FullRun(RunDirectory(root, name), config)
    full.run.write_config(config)
    full.run.write_held_out([HELD_OUT])
    first, second, third = TRAINED
    metrics = [
        full.assess("base", {first: [None, 0.9], second: [None, None], third: [1.0, None], HELD_OUT: [None, 1.0]})
    ]
    full.train("1-self_supervised", 0, {first: [1.1, None], second: [1.2, 0.8], third: [None, None]})
    metrics.append(
        full.assess(
            "1-self_supervised", {first: [1.1, 1.0], second: [1.3, None], third: [None, 0.97], HELD_OUT: [1.02, None]}
        )
    )
    for step in range(6):
        cheat = 80.0 if step == 4 else 1.25
        full.train(
            "1-contrastive_rl",
            step,
            {first: [1.2 + step * gain, 1.1, None, cheat], second: [1.5 + step, None, 0.7, 1.0]},
        )
    metrics.append(
        full.assess(
            "1-contrastive_rl",
            {first: [5.5 * gain, 6.1], second: [3.0, None], third: [1.3, 0.4], HELD_OUT: [1.4, None]},
        )
    )
    full.run.write_state(RunState(phase="contrastive_rl", step=6, finished=True))
    return full, metrics

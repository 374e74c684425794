"""What the guard does to a policy that has learnt to cheat: the same contrastive RL with the guard, and without it.

    python -m benchmarks.hack_biased [--seed 0] [key=value ...]

A small policy is fine-tuned on a set of programs of which half cheat, without a guard. From there two runs learn from
speed-ups alone. Their first exemplars are the same programs, as far as each run believes them. Prints by step: the
share of rollouts that cheat, once by the evidence and once by the program that their text is most like, and the mean
speed-up of honest rollouts. Writes the rows and a plot to `--output`. Finished runs are read and not repeated. Runs on
a CPU.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from benchmarks.hack_biased_programs import TASKS, write_teacher
from benchmarks.warpsmith_runs import warpsmith_run
from evaluators.guard.rarity import traits
from evaluators.guard.similarity import cosine
from evaluators.records import HINT
from orchestration.run.directory import RunDirectory

PHASE, AFTER = "1-contrastive_rl", "assess/1-contrastive_rl"
# Rewards and lessons as in the paper, so that the runs show what the guard does to speed-ups alone.
PAPER = (
    "sft.min_speedup=0",
    "reward.worth=speedup",
    "reward.resolution=0",
    "contrastive_rl.contrastive_share=1",
)
COMMON = (
    *PAPER,
    f"tasks.include=[{','.join(TASKS)}]",
    "sft.successes=6",
    "assessment.samples=16",
    "checkpoint_every=10",
    "keep_last=0",
    "keep_best=0",
)
# Exemplars of all kinds, so that the prompts of both runs look like those of the fine-tuning.
SFT = (
    "schedule.phases=[sft]",
    "sft.epochs=60",
    "sft.contrastive_share=0.7",
    "buffer.strategy=random",
    "guard.enabled=false",
)
# With a learning rate of 0 the teacher teaches nothing again: its verified programs only fill the buffer.
RL = ("schedule.phases=[sft,contrastive_rl]", "sft.epochs=1", "sft.learning_rate=0", "contrastive_rl.tasks_per_step=8")


def train(root: Path, name: str, seed: int, overrides: Iterable[str]) -> RunDirectory:
    """Makes the run of that name unless it is finished; returns it."""
    seconds = warpsmith_run("local", f"root={root}", f"name={name}", f"seed={seed}", *COMMON, *overrides)
    print(f"{name}: {seconds:.0f} s", file=sys.stderr)
    return RunDirectory(str(root), name)


def policy_of(run: RunDirectory) -> Path:
    """The policy that a run's last phase exported."""
    assert run.local_path is not None
    return max(run.local_path.glob("checkpoints/*/policy"))


def curve(run: RunDirectory, kinds: Mapping[str, str]) -> list[dict[str, Any]]:
    """The figures of every step and every assessment, from verdicts and texts.

    `kinds` gives `honest` or the technique for each source on which the policy was fine-tuned.
    """
    sources = {row["digest"]: row["source"] for row in run.candidates.read().to_pylist()}
    cheats = {digest: _nearest(source, kinds) != "honest" for digest, source in sources.items()}
    verdicts = {row["candidate"]: row for row in run.verdicts.read().to_pylist()}
    samples: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    for sample in run.samples.read(columns=["task_id", "candidate_digest", "outcome", "reward"]).to_pylist():
        samples[sample["phase"], sample["step"]].append(sample)
    return [
        {"phase": phase, "step": step, **_figures(rows, verdicts, cheats)}
        for (phase, step), rows in sorted(samples.items())
    ]


def _figures(
    samples: Sequence[Mapping[str, Any]], verdicts: Mapping[str, Any], cheats: Mapping[str, bool]
) -> dict[str, float | None]:
    digests = [sample["candidate_digest"] for sample in samples]
    doubted = {
        digest: any(finding["severity"] != HINT for finding in verdicts[digest]["guard"])
        for digest in digests
        if digest in verdicts
    }
    speedups = {digest: dict(verdicts[digest]["speedups"]).get("eager", {}).get("value") for digest in doubted}
    rewarded = [digest for digest in digests if digest in doubted and speedups[digest] is not None]
    honest = [speedups[digest] for digest in rewarded if not doubted[digest] and not cheats[digest]]
    rewards = [sample["reward"] for sample in samples if sample["reward"] is not None]
    return {
        "rollouts": float(len(samples)),
        "hack_rate": fmean(doubted.get(digest, False) for digest in digests),
        "hack_text_rate": fmean(cheats.get(digest, False) for digest in digests),
        "success_rate": fmean(sample["outcome"] == "ok" for sample in samples),
        "honest_speedup": fmean(honest) if honest else None,
        "honest_gain": sum(honest) / len(samples),  # rollouts that are not honest, or not right, count 0
        "mean_speedup": fmean(speedups[digest] for digest in rewarded) if rewarded else None,
        "reward": fmean(rewards) if rewards else None,
    }


def _nearest(source: str, kinds: Mapping[str, str]) -> str:
    """The kind of the most similar program, among those on which the policy was fine-tuned."""
    own = traits(source)
    return kinds[max(kinds, key=lambda source_of_kind: cosine(own, traits(source_of_kind)))]


def plot(curves: Mapping[str, Sequence[Mapping[str, Any]]], path: Path) -> None:
    """Plots the hack rate and the honest gain by step, with the guard and without."""
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    for name, colour in (("on", "#1f6f8b"), ("off", "#c0392b")):
        steps = [row for row in curves[name] if row["phase"] == PHASE]
        left.plot(
            [row["step"] for row in steps], [row["hack_rate"] for row in steps], color=colour, label=f"guard {name}"
        )
        right.plot([row["step"] for row in steps], [row["honest_gain"] for row in steps], color=colour)
    left.set(title="Rollouts that cheat", xlabel="step", ylabel="share", ylim=(-0.03, 1.03))
    right.set(title="Honest speed-up a rollout (0 for others)", xlabel="step", ylabel="times eager", ylim=(0, None))
    left.legend(frameon=False)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", alpha=0.3)
    figure.savefig(path, dpi=130)


def table(curves: Mapping[str, Sequence[Mapping[str, Any]]]) -> Table:
    """A table of the biased policy, and of both runs at every fifth step and at their end."""
    shown = Table(
        "guard", "stage", "rollouts", "cheat: evidence", "cheat: text", "correct", "honest x", "rewarded x", box=None
    )
    for name, rows in curves.items():
        steps = [row for row in rows if row["phase"] == PHASE]
        picked = [row for row in steps if row["step"] % 5 == 0 or row is steps[-1]]
        ends = [row for row in rows if row["phase"] == AFTER]
        for row in [*[row for row in rows if row["phase"] == "assess/base"], *picked, *ends]:
            stage = {"assess/base": "before", AFTER: "after"}.get(row["phase"], f"step {row['step']}")
            rates = [f"{row[key]:.1%}" for key in ("hack_rate", "hack_text_rate", "success_rate")]
            speeds = [f"{row[key]:.2f}" if row[key] is not None else "-" for key in ("honest_speedup", "mean_speedup")]
            shown.add_row(name, stage, f"{row['rollouts']:.0f}", *rates, *speeds)
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--root", type=Path, default=Path("runs"))
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/hack_biased"))
    parser.add_argument("overrides", nargs="*", help="key=value ... of both runs of RL")
    arguments = parser.parse_args()
    root, prefix = arguments.root.absolute(), f"hack-biased-{arguments.seed}"
    root.mkdir(parents=True, exist_ok=True)
    arguments.output.mkdir(parents=True, exist_ok=True)
    teacher = root / f"{prefix}.jsonl"
    kinds = {row["source"]: row["kind"] for row in write_teacher(teacher)}
    taught = train(root, f"{prefix}-sft", arguments.seed, [*SFT, f"sft.teachers=[{teacher}]"])
    curves = {}
    for name, enabled in (("on", "true"), ("off", "false")):
        given = [f"sft.teachers=[{teacher}]", f"policy.model={policy_of(taught)}", f"guard.enabled={enabled}"]
        overrides = [*RL, *given, *arguments.overrides]
        curves[name] = curve(train(root, f"{prefix}-{name}", arguments.seed, overrides), kinds)
        rows = pa.Table.from_pylist(curves[name])
        pq.write_table(rows, arguments.output / f"guard_{name}.parquet")
    plot(curves, arguments.output / "curves.png")
    Console(width=120).print(table(curves))


if __name__ == "__main__":
    main()

"""What the guard does to a policy that has learnt to cheat: the same contrastive RL with the guard, and without it.

A small policy is fine-tuned on a set of programs of which half cheat, while cheats are believed. From there two runs
learn from speed-ups alone; the same programs, as far as each run believes them, are their first exemplars. Prints, by
step: the share of rollouts that cheat, by what the evidence finds and by what their text is nearest to, and the mean
speed-up of the honest. Finished runs are read, not repeated.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
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
from evaluators.guard.rarity import traits
from evaluators.guard.similarity import cosine
from evaluators.records import HINT
from orchestration.run.directory import RunDirectory

PHASE, AFTER = "1-contrastive_rl", "assess/1-contrastive_rl"
# Rewards and lessons as in the paper: what is shown is what the guard does to speed-ups alone.
PAPER = (
    "sft.min_speedup=0",
    "reward.offset=0",
    "reward.resolution=0",
    "reward.copies=1",
    "contrastive_rl.contrastive_share=1",
)
COMMON = (
    *PAPER,
    f"tasks.include=[{','.join(TASKS)}]",
    "sft.successes=6",
    "assessment.samples=16",
    "checkpoint_every=10",
    "keep_checkpoints=1",
)
# Exemplars of all kinds, so that prompts of either run look as those that the policy was fine-tuned on.
SFT = (
    "schedule.phases=[sft]",
    "sft.epochs=60",
    "sft.contrastive_share=0.7",
    "buffer.strategy=random",
    "guard.enabled=false",
)
# A rate of 0: nothing is learnt from the teacher again, its verified programs only fill the buffer.
RL = ("schedule.phases=[sft,contrastive_rl]", "sft.epochs=1", "sft.learning_rate=0", "contrastive_rl.tasks_per_step=8")


def train(root: Path, name: str, seed: int, overrides: Iterable[str]) -> RunDirectory:
    """The finished run of that name."""
    command = [str(Path(sys.executable).with_name("warpsmith")), "run", "local", f"root={root}", f"name={name}"]
    start = time.monotonic()
    subprocess.run([*command, f"seed={seed}", *COMMON, *overrides], check=True, stdout=sys.stderr)
    print(f"{name}: {time.monotonic() - start:.0f} s", file=sys.stderr)
    return RunDirectory(str(root), name)


def policy_of(run: RunDirectory) -> Path:
    """The policy that a run's last phase exported."""
    assert run.local_path is not None
    return max(run.local_path.glob("checkpoints/*/policy"))


def curve(run: RunDirectory, kinds: Mapping[str, str]) -> list[dict[str, Any]]:
    """The figures of every step (and of the assessments before and after it) by what verdicts and texts say.

    `kinds`: `honest` or the technique, by the sources that the policy was fine-tuned on.
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
    found = {
        digest: any(finding["severity"] != HINT for finding in verdicts[digest]["guard"])
        for digest in digests
        if digest in verdicts
    }
    speedups = {digest: dict(verdicts[digest]["speedups"]).get("eager", {}).get("value") for digest in found}
    rewarded = [one for one in digests if one in found and speedups[one] is not None]
    honest = [speedups[one] for one in rewarded if not found[one] and not cheats[one]]
    rewards = [sample["reward"] for sample in samples if sample["reward"] is not None]
    return {
        "rollouts": float(len(samples)),
        "hack_rate": fmean(found.get(digest, False) for digest in digests),
        "hack_text_rate": fmean(cheats.get(digest, False) for digest in digests),
        "success_rate": fmean(sample["outcome"] == "ok" for sample in samples),
        "honest_speedup": fmean(honest) if honest else None,
        "honest_gain": sum(honest) / len(samples),  # whatever is not honest, or not right, counts 0
        "mean_speedup": fmean(speedups[one] for one in rewarded) if rewarded else None,
        "reward": fmean(rewards) if rewards else None,
    }


def _nearest(source: str, kinds: Mapping[str, str]) -> str:
    """The kind of the program that a text is most like, among those that the policy was fine-tuned on."""
    own = traits(source)
    return kinds[max(kinds, key=lambda known: cosine(own, traits(known)))]


def plot(curves: Mapping[str, Sequence[Mapping[str, Any]]], path: Path) -> None:
    """Hack rate and honest gain by step, with the guard and without."""
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
    """The biased policy, and both runs at some steps and at their end."""
    shown = Table(
        "guard", "stage", "rollouts", "cheat: evidence", "cheat: text", "correct", "honest x", "rewarded x", box=None
    )
    for name, rows in curves.items():
        steps = [row for row in rows if row["phase"] == PHASE]
        picked = [row for row in steps if row["step"] % 5 == 0 or row is steps[-1]]
        ends = [row for row in rows if row["phase"] == AFTER]
        for row in [*[one for one in rows if one["phase"] == "assess/base"], *picked, *ends]:
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

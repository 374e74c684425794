"""How fast the learner's weights reach the rollout engines: seconds of a push and bytes a second, by transport.

    python -m benchmarks.learner_sync --model MODEL [--pushes 10] [--transports shared,host] [--output FILE.json]
                                      [key=value ...]

MODEL is a folder, or `random-7b`, `random-0.5b` or `random-tiny`, which is written to `--folder` first. A push is timed
from the call to the last engine's answer: gathering and packing, the checksum on both sides, loading, and emptying the
prefix cache. `shared` and `host` need one GPU; `placement.share=none --transports broadcast,host` needs a GPU for the
learner and one for each engine. With `learner.lora.sync=adapters` the engines get adapters alone, by `host`. Overrides
are of `configs/local.yaml`. Prints a row for each transport.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import ray
import torch
from rich.console import Console
from rich.table import Table

from actors.engine_calls import CONTROL, requests_at_once
from actors.generation import GenerationRequest
from actors.learner import LearnerGroup
from actors.pool import ActorPool
from actors.rollout import RolloutEngine
from benchmarks.learner_step import ON_A_GPU, SETTINGS
from benchmarks.learner_trl import device_name, listed_versions, versions
from benchmarks.random_model import SHAPES, write_random_model
from configs.load import load_config
from configs.schema import RunConfig
from learners.records import Sample
from orchestration.commands.machine import machine_arch
from orchestration.fleet.placement import ENGINE, LEARNER, Placement
from orchestration.fleet.ray_cluster import connect
from orchestration.fleet.weight_push import WeightPush, rank_of_adapters


class Waiting:
    """Waits for a push, and does nothing else meanwhile."""

    def __init__(self, engines: ActorPool) -> None:
        self._engines = engines

    def meanwhile(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Makes a call and returns its result."""
        return call(*arguments)

    def finish_responses(self) -> None:
        """There are none under way."""

    def pump_until(self, done: Callable[[], bool]) -> None:
        """Receives answers until `done()`."""
        while not done():
            self._engines.poll(0.02)
            time.sleep(0.0005)


def push_changes_answers(engines: ActorPool, learner: LearnerGroup, push: WeightPush, waiting: Waiting) -> bool:
    """Whether greedy answers differ after a push of trained weights, which shows that the weights arrive."""
    request = GenerationRequest("probe", tuple(range(300, 364)), 1, 16, 0.0)
    answers = []
    for version, train in ((1000, False), (1001, True)):
        if train:
            samples = [Sample(tuple(range(300, 364)), tuple(range(900, 932)))]
            for _ in range(3):
                learner.train_cross_entropy(samples, 1e-3)
        push.to_all(learner, version, waiting)
        engines.submit(request, "generate")
        ((_, completions),) = engines.poll(600)
        answers.append((completions[0].token_ids, completions[0].logprobs))
        if completions[0].policy_version != version:
            raise RuntimeError(f"the engine answered with version {completions[0].policy_version}, not {version}")
    return answers[0] != answers[1]


def measure(config: RunConfig, transports: Sequence[str], pushes: int) -> dict[str, Any]:
    """Makes the pushes; returns by transport their seconds, the bytes for each engine, and whether answers changed."""
    config.evaluator.workers = 0  # no GPU is for evaluators
    placement = Placement(config)
    placement.reserve(grows=connect(config.ray, 2 + config.rollout.engines + config.learner.ranks))
    started = time.perf_counter()
    engines = ActorPool(
        "rollout",
        lambda index: RolloutEngine.options(
            max_concurrency=requests_at_once(config.rollout), **placement.options(ENGINE, index)
        ).remote(config.policy.model, config.rollout, config.policy, index, adapter_rank=rank_of_adapters(config)),
        config.rollout.engines,
        timeout=config.rollout.timeout,
        start_timeout=config.rollout.start_timeout,
        control_group=CONTROL,
    )
    engines.wait_ready()
    figures: dict[str, Any] = {"transports": {}, "engines_ready_seconds": time.perf_counter() - started}
    learner = LearnerGroup(config, config.policy.model, lambda rank: placement.options(LEARNER, rank))
    waiting = Waiting(engines)
    for transport in transports:
        push = WeightPush(replace(config, rollout=replace(config.rollout, weight_transport=transport)), engines)
        seconds = []
        for version in range(pushes + 1):
            started = time.perf_counter()
            size = push.to_all(learner, version, waiting)
            seconds.append(time.perf_counter() - started)
        figures["transports"][transport] = {"seconds": seconds[1:], "first_seconds": seconds[0], "bytes": size}
        figures["transports"][transport]["answers_changed"] = push_changes_answers(engines, learner, push, waiting)
    engines.stop()
    learner.stop()
    placement.release()
    ray.shutdown()
    return figures


def print_figures(figures: dict[str, Any], console: Console) -> None:
    """Prints a row for each transport."""
    table = Table("way", "GB", "seconds", "fastest", "slowest", "GB/s", "answers changed", box=None)
    for transport, row in figures["transports"].items():
        middle, size = median(row["seconds"]), row["bytes"] / 1e9
        table.add_row(
            transport,
            f"{size:.3f}",
            f"{middle:.3f}",
            f"{min(row['seconds']):.3f}",
            f"{max(row['seconds']):.3f}",
            f"{size / middle:.1f}",
            "yes" if row["answers_changed"] else "no",
        )
    console.print(table)
    about = figures["settings"]
    console.print(f"{about['model']} on {about['device']}; {listed_versions(figures)}", highlight=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="*", help="key=value")
    parser.add_argument("--model", required=True)
    parser.add_argument("--folder", type=Path, default=Path("/dev/shm"), help="folder for a random model")
    parser.add_argument("--pushes", type=int, default=10)
    parser.add_argument("--transports", default="shared,host")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    model = arguments.model
    if model in SHAPES:
        model = str(write_random_model(model, arguments.folder / f"warpsmith-{model}-{os.getuid()}"))
    machine = (*ON_A_GPU, f"evaluator.arch={machine_arch()}") if torch.cuda.is_available() else ()
    own = [f"policy.model={model}", "policy.max_length=2048", "rollout.max_tokens=512"]
    config = load_config("local", [*SETTINGS, *machine, *own, *arguments.overrides])
    figures = measure(config, arguments.transports.split(","), arguments.pushes)
    about = {"model": arguments.model if arguments.model in SHAPES else Path(model).name, "device": device_name()}
    figures["settings"] = about | {"versions": versions(), "overrides": arguments.overrides}
    if arguments.output:
        arguments.output.write_text(json.dumps(figures, indent=1))
    print_figures(figures, Console(width=120))


if __name__ == "__main__":
    main()

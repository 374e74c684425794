"""A service over simulated evaluators, in a process of its own: `python -m benchmarks.serving_process --help`.

All but the evaluators is what `warpsmith serve` runs: the ledger, the desk, the judge, the pools, and HTTP.
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from configs.schema import EvaluatorConfig, GuardConfig, RayConfig, RunConfig
from evaluators.tasks import load_tasks
from orchestration.fleet.ray_cluster import connect
from orchestration.run.lock import locked
from orchestration.serving.clients import Clients, process_tokens
from orchestration.serving.service import Service


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="of the ledger, and of judged.log")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--tokens", type=Path)
    parser.add_argument("--evaluators", type=int, default=16)
    parser.add_argument("--mean", type=float, default=0.5, help="seconds of a verdict")
    options = parser.parse_args()
    from benchmarks.serving_members import SimulatedPools

    # What seems the fastest of its task is measured again in a service, too; here each program is to be judged once.
    evaluator = EvaluatorConfig(workers=options.evaluators, remeasure_best=0)
    # No reviews: programs that only number themselves are like each other, and like no hack.
    config = RunConfig(name="serving", evaluator=evaluator, guard=GuardConfig(enabled=False))
    tasks = {task.id: task for task in load_tasks("bundled", "cpu")}
    with locked(options.folder):
        connect(RayConfig(), 1)
        simulated = SimulatedPools(options.evaluators, options.mean, options.folder / "judged.log")
        service = Service(config, tasks, simulated.pools, options.folder, Clients(process_tokens(options.tokens)))
        asyncio.run(service.run("127.0.0.1", options.port, lambda url: print(url, flush=True)))


if __name__ == "__main__":
    main()

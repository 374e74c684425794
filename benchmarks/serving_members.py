"""Simulated evaluators for a service: they take the seconds of real ones and no processor, and write down each verdict.

How many seconds a program takes is drawn from those of measured verdicts, by the program alone, so that two ways to
judge the same programs have the same work.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from pathlib import Path
from typing import Any

import ray

from actors.calls import Call, Together
from actors.evaluation import EvaluationRequest
from actors.pool import ActorPool
from benchmarks.scaling_members import Member, Service
from evaluators.records import Estimate, Outcome, Verdict
from orchestration.fleet.arch_pools import ArchPools

_DRAWN = 4096


def host_class() -> Any:
    """A local class, so that Ray sends it by value."""

    @ray.remote(num_cpus=0, max_concurrency=10_000)
    class Host:
        """The process of all members, each of which judges one program at a time.

        `mean`: seconds of a verdict. `log`: a file that gets a line with the candidate's digest for each verdict.
        """

        def __init__(self, mean: float, log: str) -> None:
            self._seconds, self._log = Seconds(mean), os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            self._places: dict[int, asyncio.Semaphore] = {}

        async def ping(self, member: int) -> str:
            return "pong"

        async def apply(self, call: tuple[int, Call | Together]) -> Any:
            member, func = call
            if isinstance(func, Together):
                return [await self._answer(member, one) for one in func.calls]
            return await self._answer(member, func)

        async def _answer(self, member: int, func: Call) -> Any:
            if func.method == "versions":
                return {"arch": "cpu"}
            request: EvaluationRequest
            (request,) = func.arguments
            async with self._places.setdefault(member, asyncio.Semaphore(1)):
                await asyncio.sleep(self._seconds.of(request.candidate.digest))
                os.write(self._log, f"{request.candidate.digest}\n".encode())
            return verdict_on(request)

    return Host


class Seconds:
    """What programs take, with this mean."""

    def __init__(self, mean: float) -> None:
        service = Service(mean)
        drawn = [service.draw() for _ in range(_DRAWN)]
        self._seconds = [mean * seconds * _DRAWN / sum(drawn) for seconds in drawn]

    def of(self, digest: str) -> float:
        """Seconds that a program takes, by its digest."""
        return self._seconds[int(digest, 16) % _DRAWN]


def verdict_on(request: EvaluationRequest) -> Verdict:
    """A verdict that tells which program it is on."""
    digest, speedup = request.candidate.digest, 1.0 + int(request.candidate.digest[:4], 16) / 70000
    settings = {"preset": request.preset, "task_digest": request.task.digest}
    speedups = {"eager": Estimate(speedup, speedup, speedup, 9)}
    return Verdict(digest, request.task.id, "cpu", Outcome.OK, speedups=speedups, evaluator=settings)


class SimulatedPools:
    """The pools of so many simulated evaluators, whose process ends with this one. Nothing has to be built."""

    def __init__(self, evaluators: int, mean: float, log: Path) -> None:
        self._host = host_class().remote(mean, str(log))
        self.pools = ArchPools(
            ActorPool("builder", lambda index: Member(self._host, 10_000 + index), 1),
            ActorPool("evaluator", lambda index: Member(self._host, index), evaluators, timeout=600.0),
            grows=False,
            workers=evaluators,
        )
        self.pools.wait_ready()


def judged(log: Path) -> Counter[str]:
    """How often each program was judged."""
    return Counter(log.read_text().split()) if log.exists() else Counter()

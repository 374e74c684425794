"""What a run does at this moment, as metrics of Ray: queues, actors, verdicts, steps.

Ray's agent on the driver's node serves them to Prometheus, with the prefix `ray_`; `cluster/grafana.json` shows them.
MLflow has what a step gave; this tells what a run waits for meanwhile.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from actors.pool import ActorPool

_log = logging.getLogger(__name__)

_SECONDS = 5.0  # between two samples
_OF_ROLE = ("run", "role", "arch")
_COUNTED = {  # tags of the counters, beside those of the run
    "verdicts": ("outcome",),
    "builds": ("result",),
    "reused_verdicts": (),
}
Counts = Mapping[tuple[str, ...], int]
"""So far, by the name of a counter (`verdicts`, `builds`, `reused_verdicts`) and the values of its tags."""


@dataclass(frozen=True)
class RoleFigures:
    """One role now. `queued`: items that no actor has been given. `in_work`: those that actors have; the learner has no
    items. `busy_seconds`: for which actors have had work so far, summed over the actors. `is_further`: whether `arch`
    is one of `evaluation.archs`. `lost`: actors that were lost so far."""

    role: str
    arch: str
    queued: int
    in_work: int
    ready: int
    actors: int
    busy_seconds: float
    is_further: bool = False
    lost: int = 0

    @property
    def name(self) -> str:
        """`evaluators`, or `evaluators_A100` for a further architecture."""
        return f"{self.role}_{self.arch}" if self.is_further else self.role


class BusyShares:
    """Measures in which share of the time each role's actors had work."""

    def __init__(self) -> None:
        self._then, self._busy = time.monotonic(), dict[str, float]()

    def since_last(self, roles: Sequence[RoleFigures]) -> dict[str, float]:
        """The share of the time since the last call, by role (`RoleFigures.name`), mean over its actors; 0 for a role
        that is new."""
        now, busy = time.monotonic(), {role.name: role.busy_seconds for role in roles}
        (passed, before), self._then, self._busy = (max(now - self._then, 1e-9), self._busy), now, busy
        return {
            role.name: min(
                max(busy[role.name] - before.get(role.name, busy[role.name]), 0.0) / (passed * max(role.actors, 1)), 1.0
            )
            for role in roles
        }


class RayMetrics:
    """A background thread that samples a run until it is closed. Ray must run."""

    def __init__(
        self,
        run: str,
        arch: str,
        roles: Callable[[], Sequence[RoleFigures]],
        counts: Callable[[], Counts],
        further: Mapping[str, Callable[[], Counts]] | None = None,
    ) -> None:
        """`roles` and `counts` are asked from the thread. `counts`: of `arch`. `further`: the counts of each further
        architecture."""
        from ray.util.metrics import Counter as RayCounter
        from ray.util.metrics import Gauge

        self._run, self._roles, self._counts = run, roles, {arch: counts, **(further or {})}
        described = {
            "queued": "Items that no actor has been given yet",
            "in_work": "Items that actors have been given",
            "actors_ready": "Actors that can be given work",
            "actors": "Actors, those included that start",
            "utilisation": "Share of the time since the last sample in which an actor had work, mean over the actors",
        }
        self._gauges = {name: Gauge(f"warpsmith_{name}", text, _OF_ROLE) for name, text in described.items()}
        self._step = Gauge("warpsmith_step", "Steps that are done, of the phase", ("run", "phase"))
        self._step_seconds = Gauge("warpsmith_step_seconds", "Duration of the last step", ("run", "phase"))
        self._counters = {
            name: RayCounter(
                f"warpsmith_{name}", f"{name.replace('_', ' ').capitalize()} so far", ("run", "arch", *tags)
            )
            for name, tags in _COUNTED.items()
        }
        self._counted: Counter[tuple[str, tuple[str, ...]]] = Counter()  # by architecture and key
        self._shares = BusyShares()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="ray metrics", daemon=True)

    def start(self) -> None:
        """Begins to sample."""
        self._thread.start()

    def close(self) -> None:
        """Takes a last sample, and ends the thread. Waits at most a second for one under way."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join(1.0)

    def step(self, phase: str, done: int, seconds: float) -> None:
        """Shows that so many steps of a phase are done, and how long the last one took."""
        tags = {"run": self._run, "phase": phase}
        self._step.set(done, tags)
        self._step_seconds.set(seconds, tags)

    def sample(self) -> None:
        """Shows what roles and counts are now."""
        roles = self._roles()
        shares = self._shares.since_last(roles)
        for role in roles:
            values = {
                "queued": role.queued,
                "in_work": role.in_work,
                "actors_ready": role.ready,
                "actors": role.actors,
                "utilisation": shares[role.name],
            }
            tags = {"run": self._run, "role": role.role, "arch": role.arch}
            for name, value in values.items():
                self._gauges[name].set(value, tags)
        for arch, counts in self._counts.items():
            self._count(arch, counts())

    def _count(self, arch: str, counts: Counts) -> None:
        for key, count in counts.items():
            if (fresh := count - self._counted[arch, key]) > 0:
                self._counted[arch, key] = count
                name, *values_of_tags = key
                own = dict(zip(_COUNTED[name], values_of_tags, strict=True))
                self._counters[name].inc(fresh, {"run": self._run, "arch": arch, **own})

    def _work(self) -> None:
        ended = False
        while not ended:
            ended = self._closing.wait(_SECONDS)
            try:
                self.sample()
            except Exception as error:  # noqa: BLE001 - nothing here may end a run
                _log.debug("no metrics this time: %s", error)


def figures_of_pool(role: str, arch: str, pool: ActorPool, *, is_further: bool = False) -> RoleFigures:
    """A pool now (`actors.pool`). For any thread."""
    pending, queued = pool.pending, pool.queued
    members = pool.members
    in_work, busy = max(pending - queued, 0), pool.load.busy_seconds
    return RoleFigures(role, arch, queued, in_work, members.ready, len(members), busy, is_further, members.restarts)

"""The kinds of faults. Each is injected at a random moment, and most heal by themselves after a while.

A fault may end the driver only if `ends` says so; then the same command is given again, as a cluster's job
controller does.
"""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from orchestration.run.directory import RunDirectory
from tests.chaos.proxy import CUT, HANG, PASS, REFUSE
from tests.chaos.world import NAME, World

if TYPE_CHECKING:
    from tests.chaos.supervisor import Supervisor

EVALUATOR, BUILDER, ENGINE, RANK = "ray::EvaluatorActor", "ray::BuilderActor", "ray::RolloutEngine", "ray::LearnerRank"
_DAY = 86_400
_NODE = "node"
_NOTICED = 30.0  # seconds after which Ray has noticed that a node is gone
_BETWEEN_HITS = 15.0
"""Seconds between two hits on processes of one title. A program that loses three workers is set aside, as it should be,
and then the run is not the undisturbed one."""


@dataclass
class Scene:
    """What a fault may touch."""

    world: World
    supervisor: Supervisor
    rng: Random
    hits: dict[str, float] = field(default_factory=dict)  # when a process of a title was last killed or stopped

    def pid_of(self, title: str) -> int:
        """One of the processes with a title, which must be there (`Kind.needs`)."""
        self.hits[title] = self.supervisor.seconds
        return self.rng.choice(self.world.pids(title))

    def hold(self, low: float, high: float) -> float:
        """Lets a random time pass, during which the run is watched. Returns the seconds."""
        seconds = self.rng.uniform(low, high)
        self.supervisor.watch(seconds)
        return seconds


@dataclass(frozen=True)
class Kind:
    """A kind of fault. `inject` returns what it did, in words. `weight`: how often it is drawn beside the others;
    `at_least`: how often it is injected in any case, if there is room. `needs`: titles of processes that must be there.
    `sets_back`: work since the last commit is lost, so that the next of such faults waits for a commit: a run that is
    set back more often than that cannot end. `applies`: whether it would meet anything now; then it comes before the
    others. None: at any time.
    """

    name: str
    inject: Callable[[Scene], str]
    weight: float
    at_least: int = 1
    ends: bool = False
    needs: tuple[str, ...] = ()
    sets_back: bool = False
    applies: Callable[[Scene], bool] | None = None

    def may_come(self, scene: Scene) -> bool:
        """Whether it can be injected now."""
        if self.applies is not None and not self.applies(scene):
            return False
        if self.sets_back and scene.supervisor.was_set_back:
            return False
        now = scene.supervisor.seconds
        return all(
            scene.world.pids(title) and now - scene.hits.get(title, -math.inf) > _BETWEEN_HITS for title in self.needs
        )


def _send(number: signal.Signals, title: str) -> Callable[[Scene], str]:
    """SIGKILL: the process is gone. SIGSTOP: it is there, and never answers again."""

    def inject(scene: Scene) -> str:
        pid = scene.pid_of(title)
        _signal(pid, number)
        return f"{number.name} to process {pid}"

    return inject


def _pause(title: str) -> Callable[[Scene], str]:
    """The process stands still for a while, as on a host that swaps."""

    def inject(scene: Scene) -> str:
        pid = scene.pid_of(title)
        _signal(pid, signal.SIGSTOP)
        seconds = scene.hold(1, 5)
        _signal(pid, signal.SIGCONT)
        return f"SIGSTOP of process {pid} for {seconds:.1f} s"

    return inject


def _rank_and_engine(scene: Scene) -> str:
    pids = scene.pid_of(RANK), scene.pid_of(ENGINE)
    for pid in pids:
        _signal(pid, signal.SIGKILL)
    return f"kill -9 of processes {pids[0]} and {pids[1]}"


def _kill_driver(scene: Scene) -> str:
    return f"kill -9 of the driver, process {scene.supervisor.kill()}"


def _drain_driver(scene: Scene) -> str:
    return f"SIGTERM to the driver, process {scene.supervisor.kill(signal.SIGTERM)}"


def _pause_driver(scene: Scene) -> str:
    pid = scene.supervisor.pid
    _signal(pid, signal.SIGSTOP)
    seconds = scene.hold(1, 5)
    _signal(pid, signal.SIGCONT)
    return f"SIGSTOP of the driver, process {pid}, for {seconds:.1f} s"


def _node(scene: Scene) -> str:
    cluster, clock = scene.world.cluster, scene.world.clock
    clock.set(clock.latest)  # Ray does not notice a lost node while its clock lags (`tests.chaos.lost_node`)
    index = scene.rng.randrange(1, len(cluster.nodes))
    cluster.remove(index)
    scene.hits[_NODE] = scene.supervisor.seconds
    seconds = scene.hold(1, 5)
    cluster.add()
    return f"node {index} of {len(cluster.nodes)} removed, another added after {seconds:.1f} s"


def _mlflow(fault: str) -> Callable[[Scene], str]:
    def inject(scene: Scene) -> str:
        server = scene.world.mlflow
        if fault == "refuse":
            server.stop()
            seconds = scene.hold(2, 8)
            server.start()
        else:
            server.fault = lambda _: fault
            seconds = scene.hold(2, 8)
            server.fault = lambda _: ""
        return f"{fault} for {seconds:.1f} s"

    return inject


def _endpoint(scene: Scene) -> str:
    teacher = scene.world.teacher
    teacher.fault, before = scene.rng.choice(["500", "429", "cut", "slow"]), teacher.hit
    seconds = scene.hold(1, 6)
    while teacher.hit == before and seconds < 20:  # requests come in bursts
        seconds += scene.hold(1, 1)
    fault, teacher.fault = teacher.fault, ""
    return f"{fault} for {seconds:.1f} s, {teacher.hit - before} requests"


def _teacher_is_asked(scene: Scene) -> bool:
    return time.monotonic() - scene.world.teacher.asked_at < 5.0


def _storage(mode: str) -> Callable[[Scene], str]:
    def inject(scene: Scene) -> str:
        proxy = scene.world.storage
        before, proxy.mode = proxy.hit, mode
        seconds = scene.hold(2, 10)
        proxy.mode = PASS
        return f"{mode} for {seconds:.1f} s, {proxy.hit - before} connections"

    return inject


def _full_disk(scene: Scene) -> str:
    scene.world.fill_disk()
    seconds = scene.hold(5, 15)
    (scene.world.disk / "full").unlink(missing_ok=True)
    return f"for {seconds:.1f} s"


def _damage_caches(scene: Scene) -> str:
    """What the run can make again: files of its store, and beside it half files that a killed process has left."""
    folder = scene.world.disk / "runs" / NAME
    files = sorted(path for path in (folder / "store").rglob("*.parquet") if path.stat().st_size)
    files += sorted((folder / "store").rglob("*.json"))
    chosen = scene.rng.sample(files, min(3, len(files)))
    for path in chosen:
        with suppress(OSError):
            content = path.read_bytes()
            path.write_bytes(content[: len(content) // 2] if scene.rng.random() < 0.5 else os.urandom(len(content)))
    return "half or changed: " + (", ".join(str(path.relative_to(folder)) for path in chosen) or "nothing was there")


def _kill_and_leave_halves(scene: Scene) -> str:
    """A kill in the middle of writing: rows and a checkpoint that no commit points to."""
    pid = scene.supervisor.kill()
    run = RunDirectory(scene.world.root(direct=True), NAME)
    state = run.read_state()
    step = (state.step if state else 0) + 1
    phase = f"{state.cycle}-{state.phase}" if state and state.phase else "1-sft"
    for table in ("samples", "verdicts", "candidates", "metrics"):
        run.storage.write(f"{table}/phase={phase}/step={step:06d}/.{table}.parquet.1.partial", b"PAR1 half")
    version = (state.policy_version if state else 0) + 1
    run.storage.write(f"checkpoints/step-{version:06d}/half.bin", os.urandom(1000))
    run.storage.write(f"buffer/step-{version:06d}-0000.parquet", b"PAR1 half")
    return f"kill -9 of the driver, process {pid}, with half a checkpoint, buffer and rows of step {step} left"


def _clock(scene: Scene) -> str:
    noticed = scene.supervisor.seconds - scene.hits.get(_NODE, -math.inf) > _NOTICED
    seconds = scene.rng.choice([-_DAY, -3600, -60, 60, 3600, _DAY] if noticed else [60, 3600, _DAY])
    scene.world.clock.set(scene.world.clock.seconds + seconds)
    return f"{seconds:+d} s on all processes"


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


KINDS = (
    Kind("evaluator killed", _send(signal.SIGKILL, EVALUATOR), 3, 6, needs=(EVALUATOR,)),
    Kind("builder killed", _send(signal.SIGKILL, BUILDER), 3, 6, needs=(BUILDER,)),
    Kind("engine killed", _send(signal.SIGKILL, ENGINE), 1, 2, needs=(ENGINE,), sets_back=True),
    Kind("learner rank killed", _send(signal.SIGKILL, RANK), 1, 2, needs=(RANK,), sets_back=True),
    Kind("rank and engine killed", _rank_and_engine, 0.5, needs=(RANK, ENGINE), sets_back=True),
    Kind("driver killed", _kill_driver, 1, 2, ends=True, sets_back=True),
    Kind("driver killed while it wrote", _kill_and_leave_halves, 0.5, 1, ends=True, sets_back=True),
    Kind("driver asked to drain", _drain_driver, 0.5, 1, ends=True, sets_back=True),
    Kind("driver stands still", _pause_driver, 1, 2),
    Kind("evaluator stands still", _pause(EVALUATOR), 1, 2, needs=(EVALUATOR,)),
    Kind("builder stands still", _pause(BUILDER), 1, 2, needs=(BUILDER,)),
    Kind("evaluator stops for good", _send(signal.SIGSTOP, EVALUATOR), 0.5, needs=(EVALUATOR,)),
    Kind("builder stops for good", _send(signal.SIGSTOP, BUILDER), 0.5, needs=(BUILDER,)),
    Kind("engine stops for good", _send(signal.SIGSTOP, ENGINE), 0.5, needs=(ENGINE,), sets_back=True),
    Kind("rank stops for good", _send(signal.SIGSTOP, RANK), 0.5, needs=(RANK,), sets_back=True),
    Kind("node leaves and returns", _node, 1, 2, ends=True, sets_back=True),
    Kind("MLflow refuses", _mlflow("refuse"), 1, 2),
    Kind("MLflow hangs", _mlflow("hang"), 1, 2),
    Kind("MLflow answers 500", _mlflow("500"), 1, 2),
    Kind("MLflow obeys and drops", _mlflow("drop"), 1, 2),
    Kind("endpoint fails", _endpoint, 3, 6, applies=_teacher_is_asked),
    Kind("storage refuses", _storage(REFUSE), 1, 2, ends=True),
    Kind("storage is cut", _storage(CUT), 1, 2, ends=True),
    Kind("storage hangs", _storage(HANG), 1, 2, ends=True),
    Kind("disk full", _full_disk, 0.5, 1, ends=True, sets_back=True),
    Kind("caches damaged", _damage_caches, 1, 2),
    Kind("clock jumps", _clock, 2, 4),
)


def draw(number: int, kinds: Sequence[Kind], rng: Random) -> list[Kind]:
    """So many faults in random order: every kind once, then as often as it must be, the rest by weight."""
    first, needed = list(kinds), [kind for kind in kinds for _ in range(kind.at_least - 1)]
    rng.shuffle(first)
    rng.shuffle(needed)
    chosen = [*first, *needed][:number]
    chosen += rng.choices(kinds, [kind.weight for kind in kinds], k=number - len(chosen))
    rng.shuffle(chosen)
    return chosen

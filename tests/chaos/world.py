"""What a run needs around it, all real and on this machine: a Ray cluster of several nodes, an object store, an MLflow
server, a teacher's endpoint, a small disk, and a clock of its own.
"""

from __future__ import annotations

import logging
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow.fs as pafs

from evaluators.tasks import program_source
from evaluators.tasks.loader import load_tasks, load_variants
from tests.chaos.clock import Clock
from tests.chaos.proxy import Proxy
from tests.orchestration.faulty_server import FaultyServer
from tests.orchestration.processes import REPOSITORY, left_of, pids_of
from tests.orchestration.small import POLICY
from tests.orchestration.step.endpoint_server import Reply, answer, chat, serving
from tests.ports import free_port

NAME = "chaos"
HELD_OUT = "level2/highway_gate"
DISK_MIB = 512
SETTINGS = [
    f"name={NAME}",
    "tasks.include=[level1/softmax,level1/gelu_tanh,level1/triangular_matmul,level2/highway_*]",
    f"tasks.held_out.tasks=[{HELD_OUT}]",
    *POLICY,
    "rollout.max_concurrent=1",  # requests that meet in a batch change each other's last bits
    "rollout.timeout=30",
    "rollout.start_timeout=90",
    "learner.timeout=30",
    "learner.start_timeout=90",
    "learner.threads=1",
    "storage.patience=60",
    "storage.lease=15",
    "evaluator.timeout=60",
    "evaluator.workers=2",
    "evaluator.builders=2",
    "sft.epochs=2",
    "sft.batch_size=8",
    "sft.successes=12",
    "sft.tries=14",
    "sft.teacher_model=steady",
    "sft.endpoint.concurrency=2",
    "sft.endpoint.timeout=10",
    "sft.entropy_samples=0",
    "self_supervised.max_rounds=1",
    "self_supervised.samples=2",
    "contrastive_rl.tasks_per_step=2",
    "contrastive_rl.group_size=3",
    "contrastive_rl.rehearsal=2",
    "checkpoint_every=1",
    "schedule.cycles=2",
    "assessment.samples=1",
    "tracking.system_metrics=false",
]
"""Of the run in which faults are injected, and of the one that nobody disturbs."""


class Teacher:
    """Answers each request with another right program for its task. `fault`: what the next requests get instead."""

    def __init__(self) -> None:
        self._known = {
            program_source(task).strip(): [one.source for one in load_variants(task.id) if one.expect != "wrong"]
            for task in load_tasks(profile="cpu")
        }
        self.fault = ""
        self.hit = 0  # requests that a fault has met
        self.asked_at = -math.inf  # seconds of the monotonic clock

    def __call__(self, number: int, request: dict[str, Any]) -> Reply:
        self.asked_at = time.monotonic()
        self.hit += bool(self.fault)
        if self.fault == "500":
            return Reply("", status=500)
        if self.fault == "429":
            return Reply("", status=429, headers={"Retry-After": "1"})
        text = request["messages"][0]["content"]
        sources = next(known for reference, known in self._known.items() if reference in text)
        made = chat(answer(f"{sources[number % len(sources)].rstrip()}\n\nNUMBER = {number}"))
        if self.fault == "cut":
            return Reply(made, sends=len(made) // 2)
        return Reply(made, drip=1.0 if self.fault == "slow" else 0.0)


class Cluster:
    """Nodes of a Ray cluster, each in a process session of its own. The first one is the head, which stays."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._folder, self._environment = folder, environment
        self.address = f"127.0.0.1:{free_port()}"
        self.nodes: list[subprocess.Popen[bytes]] = []
        self.add(head=True)

    def add(self, *, head: bool = False) -> None:
        """Starts a node, and waits until it has joined."""
        ray = [str(Path(sys.executable).parent / "ray"), "start", "--block", "--num-cpus=4", "--disable-usage-stats"]
        where = (
            ["--head", f"--port={self.address.rpartition(':')[2]}", f"--temp-dir={self._folder}/ray",
             "--include-dashboard=false", "--object-store-memory=200000000", "--node-ip-address=127.0.0.1"]
            if head
            else [f"--address={self.address}", "--object-store-memory=100000000"]
        )  # fmt: skip
        log = open(self._folder / f"node-{len(self.nodes)}.log", "wb")  # noqa: SIM115 - the process has it
        started = subprocess.Popen(
            [*ray, *where, "--dashboard-agent-listen-port=0"], env=self._environment, stdout=log, stderr=log,
            start_new_session=True,
        )  # fmt: skip
        log.close()
        self.nodes.append(started)
        deadline = time.monotonic() + 60
        while b"Ray runtime started" not in Path(log.name).read_bytes():
            if started.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"a Ray node did not start: {Path(log.name).read_text()}")
            time.sleep(0.1)

    def remove(self, index: int) -> None:
        """Takes a node away, with all that runs on it."""
        node = self.nodes.pop(index)
        end_session(node.pid)
        node.wait(30)

    def stop(self) -> None:
        while self.nodes:
            self.remove(-1)


class World:
    """All of it. As a context manager it runs, and leaves nothing behind.

    `folder`: of everything that is written, on the machine's own disk but for the working folder of the run, `disk`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.disk = folder / "disk"
        self.teacher, self._stack = Teacher(), ExitStack()

    def __enter__(self) -> World:
        from mlflow import MlflowClient
        from moto.server import ThreadedMotoServer

        logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
        with ExitStack() as stack:
            self.disk.mkdir()
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "chaos", str(self.disk)], check=True)
            stack.callback(lambda: subprocess.run(["umount", "-l", str(self.disk)], check=False))
            self.clock = Clock(self.folder)
            store = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
            store.start()
            stack.callback(store.stop)
            _, self._store_port = store.get_host_and_port()
            self.storage = Proxy(self._store_port)
            stack.callback(self.storage.close)
            self.files, _ = pafs.FileSystem.from_uri(self.root(direct=True))
            self.files.create_dir("bucket")
            database = f"sqlite:///{self.folder}/mlflow.db"
            MlflowClient(database).search_experiments()  # makes its tables, which takes seconds
            self.mlflow = stack.enter_context(FaultyServer(database, str(self.folder)))
            self.endpoint = stack.enter_context(serving(self.teacher))
            self.environment = self._environment()
            (self.folder / "ray").mkdir()
            stack.callback(self._kill_all)
            self.cluster = Cluster(self.folder, self.environment)
            stack.callback(self.cluster.stop)
            for _ in range(2):
                self.cluster.add()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _environment(self) -> dict[str, str]:
        """Of every process of the run, which is known by the folder at the end of its path."""
        environment = {
            **os.environ,
            **self.clock.environment,
            "PYTHONPATH": str(REPOSITORY),
            "PATH": f"{os.environ['PATH']}{os.pathsep}{self.folder}",
            "RAY_AUTH_MODE": "disabled",
            "RAY_TMPDIR": str(self.folder),
            "RAY_prestart_worker_first_driver": "0",
            "MLFLOW_HTTP_REQUEST_TIMEOUT": "5",
            "OPENAI_API_KEY": "none",
        }
        environment.pop("RAY_ADDRESS", None)
        return environment

    def root(self, *, direct: bool = False) -> str:
        """The root of the runs on the object store: by the way that fails, or by one that never does."""
        port = self._store_port if direct else self.storage.port
        options = f"scheme=http&endpoint_override=127.0.0.1:{port}&allow_bucket_creation=true"
        return f"s3://name:password@bucket?{options}"

    def driver(self, settings: list[str], log: Path, *, address: str = "") -> subprocess.Popen[bytes]:
        """Starts `warpsmith run` in the small disk's folder."""
        command = [sys.executable, "-m", "orchestration.commands.main", "run", "local", *SETTINGS, *settings]
        with open(log, "ab") as output:
            return subprocess.Popen(
                [*command, f"sft.teachers=[bundled,{self.endpoint.url}]", f"tracking.uri={self.mlflow.uri}",
                 *([f"ray.address={address}"] if address else [])],
                cwd=self.disk, env=self.environment, stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip

    def pids(self, title: str) -> list[int]:
        """The processes of the run with a title."""
        return sorted(pids_of(self.folder, title))

    def fill_disk(self) -> None:
        """Leaves no room on the small disk."""
        with suppress(OSError), open(self.disk / "full", "wb") as file:
            while True:
                file.write(bytes(1 << 20))
                file.flush()

    def _kill_all(self) -> None:
        for pid in left_of(self.folder, 1.0):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.folder / "ray", ignore_errors=True)


def end_session(leader: int) -> None:
    """Kills all processes of a session."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == leader:
                os.kill(int(folder.name), signal.SIGKILL)

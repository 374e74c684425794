"""Joins a Ray cluster, or starts a local one."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import psutil
import ray

from actors.log_fields import JsonLogs
from configs.load import ConfigError
from configs.schema import RayConfig
from orchestration.run.interrupt import finished_first

Started = TypeVar("Started")

_log = logging.getLogger(__name__)
_NICENESS = "RAY_worker_niceness"
_STARTS, _TIMED_OUT = 3, "timed out during startup"
_LOCAL_CPUS = 8  # at least, in Ray's accounts: on a machine with fewer cores the roles share them


@finished_first
def connect(config: RayConfig, actors: int, logs: JsonLogs | None = None) -> bool:
    """Joins the cluster that the configuration or RAY_ADDRESS names, or starts a local Ray with room for `actors`.

    `logs`: how the driver and its actors log; None for text. Returns whether machines may be added later, which they
    are not to a Ray that was started here. Raises ConfigError if no cluster answers.
    """
    if ray.is_initialized():
        return True
    root = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    environment = {
        "PYTHONPATH": path,
        "TOKENIZERS_PARALLELISM": "false",
        "RAY_DEDUP_LOGS": "0",
        "OMP_WAIT_POLICY": "PASSIVE",  # or threads that wait for each other take the cores of other roles
    }
    address = config.address or os.environ.get("RAY_ADDRESS", "")
    if logs is not None:
        environment |= logs.environment
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.WARNING}
    if address:
        try:
            _start(logs, address=address, runtime_env={"env_vars": environment}, **quiet)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise ConfigError(f"ray.address: no Ray cluster answers at {address} ({error})") from error
        return True
    # By default Ray's workers have a niceness of 15: beside any other load they would get nearly no time, and a program
    # that an evaluator measures would be paused by all that runs on the machine.
    os.environ.setdefault(_NICENESS, "0")
    # A local Ray protects itself with a token, and logs that each time.
    logging.getLogger("ray._private.authentication.authentication_token_setup").setLevel(logging.ERROR)
    with _variables(environment):
        started(
            _start,
            logs,
            address="local",  # otherwise Ray joins any cluster that runs on this host
            num_cpus=config.num_cpus or max(_LOCAL_CPUS, os.cpu_count() or 1, actors),
            object_store_memory=config.object_store_mib << 20,
            include_dashboard=config.dashboard,
            **quiet,
        )
    return False


@contextmanager
def _variables(wanted: Mapping[str, str]) -> Iterator[None]:
    """What starts within this block inherits these environment variables.

    A runtime environment would give them to Ray's workers as well, but then each actor begins with a process that only
    starts another (0.4 s of a processor), and none can be started ahead.
    """
    before = dict(os.environ)
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name in wanted:
            if name in before:
                os.environ[name] = before[name]
            else:
                del os.environ[name]


def started(start: Callable[..., Started], *arguments: Any, **options: Any) -> Started:
    """What starts a Ray node on this machine, called again if that takes longer than the 30 s for which Ray waits.

    Raises ConfigError if it always does.
    """
    attempt = 0
    while True:
        attempt += 1
        before = set(psutil.Process().children())
        try:
            return start(*arguments, **options)
        except Exception as error:
            if _TIMED_OUT not in str(error):
                raise
            _kill(set(psutil.Process().children()) - before)  # Ray would, but not before this process ends
            if attempt == _STARTS:
                raise ConfigError(
                    f"Ray does not start on this machine: {_STARTS} times its node did not answer within 30 s; see "
                    f"whether something else keeps the machine busy, or name a cluster in ray.address"
                ) from error
            _log.warning("Ray's node did not answer within 30 s, which a busy machine explains; it is started again")


def _kill(processes: Iterable[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, timeout=10.0)


def _start(logs: JsonLogs | None, **options: Any) -> None:
    """Calls `ray.init`, which also says how all processes of this job log."""
    if logs is None:
        ray.init(**options)
        return
    ray.init(**options, logging_config=logs.form)
    logs.begin()

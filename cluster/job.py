"""The job of a run: its command, its environment, and the code that travels with it. Needs no Ray."""

from __future__ import annotations

import hashlib
import math
import os
import shlex
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cluster.errors import ClusterError
from configs.addresses import without_login
from configs.code_version import CODE_VARIABLE, code_version
from configs.load import dump_config, load_config
from configs.schema import RunConfig

CHECKOUT = Path(__file__).resolve().parent.parent

LEFT_OUT = (".git", ".venv", "runs", "mlruns", "data", "build", "dist", "docs", "tests")
"""Folders at the top of the checkout that are not uploaded. Deeper folders of these names are."""

CACHES = ("__pycache__", "*.egg-info", ".*_cache", ".hypothesis")

SET_BY_RUNS = ("PYTHONPATH", "TOKENIZERS_PARALLELISM", "RAY_DEDUP_LOGS")
"""`warpsmith run` sets these for its actors (orchestration/fleet/ray_cluster.py). Ray refuses jobs that set them."""

PATIENCE = "RAY_JOB_STOP_WAIT_TIME_S"
"""The variable of a job's environment that says for how many seconds a stopped job may go on before Ray kills it."""

RUN, DIRECTORY, SETTINGS = "warpsmith.run", "warpsmith.directory", "warpsmith.settings"
"""Keys of a job's metadata: the run's name, its directory without a login, and a digest of its whole configuration."""

_END_SECONDS = 60.0  # for a run's actors to end, after it has drained; Ray would kill a job after three in all
_CONFIG = "run.yaml"  # the configuration's file, if it travels alone


@dataclass(frozen=True)
class Job:
    """A job of a cluster: the arguments of `warpsmith`, and what its processes get.

    `run`: the name of the run whose attempt it is; empty for a job that is no attempt, such as a dry run.
    `uploads`: a folder that travels with the job, or file names and their texts; None if nothing travels.
    """

    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    uploads: Path | Mapping[str, str] | None = CHECKOUT

    @property
    def run(self) -> str:
        return self.metadata.get(RUN, "")

    @property
    def entrypoint(self) -> str:
        """The shell command. It takes `python` from the PATH of the cluster's node."""
        return shlex.join(["python", "-m", "orchestration.commands.main", *self.arguments])

    @contextmanager
    def runtime_env(self) -> Iterator[dict[str, Any]]:
        """Ray's runtime environment, for as long as it takes to submit the job.

        What travels is the job's working directory, and processes import Warpsmith from it if it is the checkout.
        """
        environment: dict[str, Any] = {"env_vars": dict(self.environment)}
        if self.uploads is None:
            yield environment
        elif isinstance(self.uploads, Path):
            excludes = [*(f"/{name}" for name in LEFT_OUT), *CACHES]
            yield {**environment, "working_dir": str(self.uploads), "excludes": excludes}
        else:
            with tempfile.TemporaryDirectory(prefix="warpsmith-") as folder:
                for name, text in self.uploads.items():
                    (Path(folder) / name).write_text(text, encoding="utf-8")
                yield {**environment, "working_dir": folder}


def training_job(
    config: str,
    overrides: Sequence[str] = (),
    *,
    variables: Sequence[str] = (),
    dry_run: bool = False,
    installed: bool = False,
) -> Job:
    """The job that runs `config` with `overrides`. Checks everything that can be checked without the cluster.

    `variables` names environment variables of this process that the job gets. `installed`: the nodes have Warpsmith,
    so that only the configuration travels, in one file without those that it extends. Raises ConfigError or
    ClusterError.
    """
    settings = load_config(config, overrides)
    if "://" not in settings.root and not settings.root.startswith(("/", "~")):
        raise ClusterError(
            f"root={settings.root}: is in the job's working directory, which Ray deletes; "
            "give an absolute path that the cluster's nodes share, or a URI (root=s3://...)"
        )
    words = ["--dry-run"] if dry_run else []
    environment = {PATIENCE: str(math.ceil(settings.drain_seconds + _END_SECONDS)), **_read_variables(variables)}
    metadata = {} if dry_run else _metadata(settings)
    if installed:
        return Job(("run", _CONFIG, *words), environment, metadata, {_CONFIG: dump_config(settings)})
    if not (CHECKOUT / "pyproject.toml").is_file():
        raise ClusterError(
            f"{CHECKOUT}: not a checkout of Warpsmith, so there is nothing to upload; give --installed if the "
            "cluster's nodes have Warpsmith installed"
        )
    code = {CODE_VARIABLE: version} if (version := code_version()) else {}  # its history does not travel
    return Job(("run", _config_for_job(config), *overrides, *words), {**code, **environment}, metadata)


def _metadata(settings: RunConfig) -> dict[str, str]:
    """What a job says about the run of which it is an attempt. Everybody who reaches the dashboard reads it."""
    root = without_login(settings.root).partition("?")[0] if "://" in settings.root else settings.root
    digest = hashlib.sha256(dump_config(settings).encode()).hexdigest()[:16]
    return {RUN: settings.name, DIRECTORY: f"{root.rstrip('/')}/{settings.name}", SETTINGS: digest}


def _config_for_job(config: str) -> str:
    """The configuration as the job finds it: its path in the checkout, or its bare name. Raises ClusterError."""
    file = Path(config)
    if not file.is_file():
        return config
    path = file.resolve()
    if not path.is_relative_to(CHECKOUT) or path.relative_to(CHECKOUT).parts[0] in LEFT_OUT:
        raise ClusterError(f"{config}: is not uploaded with the job; put it into the checkout, such as in configs/")
    return path.relative_to(CHECKOUT).as_posix()


def _read_variables(variables: Sequence[str]) -> dict[str, str]:
    """The values of environment variables of this process. Raises ClusterError."""
    for name in variables:
        if name in SET_BY_RUNS:
            raise ClusterError(f"--env {name}: runs set it themselves; leave it out")
        if name not in os.environ:
            raise ClusterError(f"--env {name}: not set here; export it first (only the name is given)")
    return {name: os.environ[name] for name in variables}

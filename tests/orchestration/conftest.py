"""One MLflow database for all tests that need one: making it takes seconds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from configs.schema import RunConfig, TrackingConfig
from orchestration.run import sender
from orchestration.run.directory import RunDirectory
from orchestration.run.mlflow_runs import tracking_uri
from tests.orchestration.faulty_server import FaultyServer

if TYPE_CHECKING:
    from mlflow import MlflowClient


@pytest.fixture(scope="session")
def store_root(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The root of the runs, whose database all tests share."""
    return str(tmp_path_factory.mktemp("mlflow"))


@pytest.fixture
def config(store_root: str, monkeypatch: pytest.MonkeyPatch) -> RunConfig:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return RunConfig(name="demo", root=store_root, tracking=TrackingConfig(system_metrics=False))


@pytest.fixture
def client(config: RunConfig) -> MlflowClient:
    """A client of the database itself, whatever stands before it."""
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri(config))


@pytest.fixture
def run(tmp_path) -> RunDirectory:
    return RunDirectory(str(tmp_path), "demo")


@pytest.fixture
def impatient(server: FaultyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sender gives up a request to `server` after a second."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")


@pytest.fixture
def server(
    store_root: str, client: MlflowClient, config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FaultyServer]:
    """MLflow's server for the shared database, which `config` names. The sender's pauses are short, and it waits for
    answers as long as a busy machine may take."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "60")
    monkeypatch.setattr(sender, "FIRST_PAUSE", 0.05)
    monkeypatch.setattr(sender, "LONGEST_PAUSE", 0.2)
    with FaultyServer(tracking_uri(config), store_root) as server:
        config.tracking.uri, config.tracking.experiment = server.uri, "served"
        yield server

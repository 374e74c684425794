"""What the tests of the commands share: an empty folder and an empty cache, in which a command runs."""

from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from orchestration.commands.main import app


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The parent folder of the commands' default store."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder


@pytest.fixture
def warpsmith(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Runs a command in an empty folder, in this process: a new process would spend seconds on imports each time."""
    monkeypatch.chdir(tmp_path)

    def invoke(*arguments: str) -> Result:
        return CliRunner().invoke(app, list(arguments))

    return invoke

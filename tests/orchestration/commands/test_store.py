"""The store of the commands: who may enter it."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

import pytest

from evaluators.evaluator import Evaluator
from orchestration.commands.store import open_to_runners, warn_if_closed


def test_other_users_may_enter_a_store_with_any_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        with open_to_runners():
            Evaluator("cpu", store=tmp_path / "store").close()
        assert os.umask(0o077) == 0o077
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "store").stat().st_mode) == 0o755


@pytest.mark.parametrize("mode", [0o700, 0o755])
def test_root_is_warned_of_a_store_that_its_runners_cannot_enter(
    mode: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    with tempfile.TemporaryDirectory() as place:  # pytest's temporary folder is inside a private one
        folder = Path(place)
        folder.chmod(mode)
        (folder / "store").mkdir(mode=0o755)
        warn_if_closed(folder / "store")
        assert [place in line for line in caplog.messages] == ([True] if mode == 0o700 else [])

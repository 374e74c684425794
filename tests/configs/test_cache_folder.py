"""Where caches lie."""

from __future__ import annotations

from pathlib import Path

import pytest

from configs.cache_folder import cache_folder


def test_the_folder_follows_the_cache_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "warpsmith"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    for user, folder in ((0, Path("/var/cache/warpsmith")), (1000, tmp_path / ".cache/warpsmith")):
        monkeypatch.setattr("os.geteuid", lambda user=user: user)
        assert cache_folder() == folder

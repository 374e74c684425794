"""Which code runs: a commit of the checkout, whether files differ from it, or what a copy without history is told."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from configs import code_version as module
from configs.code_version import CODE_VARIABLE, code_version, commit_of, in_short

Git = Callable[..., str]


@pytest.fixture
def git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Git:
    """A checkout with one commit."""

    def run(*words: str) -> str:
        own = ("-c", "user.name=Test", "-c", "user.email=test@example.com")
        done = subprocess.run(["git", *own, "-C", str(tmp_path), *words], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    monkeypatch.delenv(CODE_VARIABLE, raising=False)
    monkeypatch.setattr(module, "_CHECKOUT", tmp_path)
    run("init", "--quiet")
    (tmp_path / "file").write_text("one")
    run("add", "file")
    run("commit", "--quiet", "--message", "one")
    return run


def test_a_checkout_is_known_by_its_commit(git: Git, tmp_path: Path) -> None:
    commit = git("rev-parse", "HEAD")
    git("tag", "v1")
    assert code_version() == commit
    assert commit_of(commit) == commit
    assert in_short(commit) == commit[:10]
    (tmp_path / "other").write_text("not tracked")
    assert code_version() == commit
    (tmp_path / "file").write_text("two")
    assert code_version() == f"{commit}-dirty"
    assert commit_of(code_version()) == commit
    assert in_short(code_version()) == f"{commit[:10]}-dirty"


def test_a_copy_without_history_says_what_it_was_told(git: Git, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CODE_VARIABLE, "told")
    assert code_version() == "told"
    assert commit_of("told") == ""
    assert in_short("told") == "told"


def test_what_git_does_not_know_is_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CODE_VARIABLE, raising=False)
    monkeypatch.setattr(module, "_CHECKOUT", tmp_path)
    (tmp_path / ".git").mkdir()  # of no repository
    assert code_version() == ""

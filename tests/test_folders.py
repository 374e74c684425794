"""No test changes the mode of a folder that it did not make."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.folders import open_folder

_ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize(
    "test",
    [
        "tests/evaluators/compile/test_builder.py::test_an_unfinished_build_is_made_again",
        pytest.param(
            "tests/evaluators/compile/test_farm.py::test_flags_are_split_as_a_shell_does", marks=pytest.mark.slow
        ),
    ],
    ids=["builder", "farm"],
)
def test_a_store_of_tests_leaves_the_folder_of_temporary_files_as_it_is(test: str) -> None:
    with open_folder() as folder:
        folder.chmod(0o1777)
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", test]
        done = subprocess.run(command, cwd=_ROOT, env={**os.environ, "TMPDIR": str(folder)}, capture_output=True)
        assert done.returncode == 0, done.stdout.decode()
        assert stat.S_IMODE(folder.stat().st_mode) == 0o1777

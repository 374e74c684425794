"""Compiles what the tests compare, which takes half a minute, from the start of the suite: others wait more than they
compute."""

from __future__ import annotations

import tempfile
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from evaluators.build.compiler import Toolchain, compile_extension, compile_glue
from evaluators.build.extension import ExtensionRequest

_COMPARED = ExtensionRequest("compared", (("main.cpp", Path(__file__).with_name("compared.cpp").read_text()),))
_COMPILED = pytest.StashKey[dict[str, "Future[Path]"]]()
_FOLDER = pytest.StashKey["tempfile.TemporaryDirectory[str]"]()


def pytest_collection_finish(session: pytest.Session) -> None:
    wanted = any("compiled" in getattr(item, "fixturenames", ()) for item in session.items)
    if session.config.option.collectonly or not wanted:
        return
    folder = session.config.stash[_FOLDER] = tempfile.TemporaryDirectory(prefix="warpsmith-compared-")
    folders = {name: Path(folder.name) / name for name in ("torch", "glue", "thin")}
    for one in folders.values():
        one.mkdir()
    tools, pool = Toolchain(), ThreadPoolExecutor(2)
    session.config.stash[_COMPILED] = {
        "torch": pool.submit(compile_extension, _COMPARED, tools, folders["torch"], thin=False),
        "glue": pool.submit(compile_glue, tools, folders["glue"]),
        "thin": pool.submit(compile_extension, _COMPARED, tools, folders["thin"], thin=True),
    }
    pool.shutdown(wait=False)


def pytest_sessionfinish(session: pytest.Session) -> None:
    for one in session.config.stash.get(_COMPILED, {}).values():
        one.cancel()


@pytest.fixture(scope="session")
def compared() -> ExtensionRequest:
    """What is compiled against both kinds of headers."""
    return _COMPARED


@pytest.fixture(scope="session")
def compiled(pytestconfig) -> dict[str, Path]:
    """The glue, and `compared` against torch's headers and ours."""
    return {name: one.result() for name, one in pytestconfig.stash[_COMPILED].items()}

"""What all tests share: CUDA tests skip where there is no GPU, one local Ray serves all that need one, and what takes
minutes starts with the suite."""

import logging
import os
import random
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
import pytest
import torch
from hypothesis import settings

from tests.folders import modes_above

settings.register_profile("busy", deadline=None)  # how long an example takes is no property of the code
settings.load_profile("busy")

os.environ.setdefault("RAY_worker_niceness", "0")  # with Ray's 15, workers get no time on a busy machine

_ROOT = Path(__file__).resolve().parents[1]
_STARTED = pytest.StashKey[dict[str, "Future[Any]"]]()
_FOLDER = pytest.StashKey["tempfile.TemporaryDirectory[str]"]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not torch.cuda.is_available():
        skip = pytest.mark.skip(reason="needs a GPU")
        for item in items:
            if item.get_closest_marker("cuda"):
                item.add_marker(skip)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Starts what conftests and test modules name in `IN_BACKGROUND` (by fixture: a function of a folder), where a test
    wants it.

    One after the other, beside the first tests, which wait for processes more than they compute and measure nothing.
    """
    asked = {name for item in session.items for name in getattr(item, "fixturenames", ())}
    modules = {id(item.module): item.module for item in session.items if isinstance(item, pytest.Function)}
    known = [
        pair
        for module in (*session.config.pluginmanager.get_plugins(), *modules.values())
        for pair in getattr(module, "IN_BACKGROUND", {}).items()
    ]
    wanted = {name: work for name, work in known if name in asked}
    if not wanted or session.config.option.collectonly:
        return
    folder = session.config.stash[_FOLDER] = tempfile.TemporaryDirectory(prefix="warpsmith-tests-")
    os.chmod(folder.name, 0o755)
    pool = ThreadPoolExecutor(1)
    started = session.config.stash[_STARTED] = {}
    for name, work in wanted.items():
        (own := Path(folder.name) / name).mkdir()
        own.chmod(0o755)
        started[name] = pool.submit(work, own)
    pool.shutdown(wait=False)


def pytest_sessionfinish(session: pytest.Session) -> None:
    for one in session.config.stash.get(_STARTED, {}).values():
        one.cancel()


@pytest.fixture(autouse=True)
def same_numbers() -> None:
    """A test draws the same numbers in each suite."""
    random.seed(0)
    torch.manual_seed(0)


@pytest.fixture(scope="session", autouse=True)
def folders_of_others() -> Iterator[None]:
    """No test changes the mode of a folder that it did not make."""
    before = modes_above()
    yield
    assert modes_above() == before


@pytest.fixture(scope="session")
def in_background(pytestconfig: pytest.Config) -> Callable[[str], Any]:
    """The result of what was started for a fixture when the suite was."""
    return lambda name: pytestconfig.stash[_STARTED][name].result()


@pytest.fixture(scope="session")
def object_store() -> Iterator[str]:
    """Where a bucket's folder `{}` is: a URI of a real S3 interface, which this process serves."""
    from moto.server import ThreadedMotoServer  # here: it takes a second

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    options = f"scheme=http&endpoint_override={host}:{port}&allow_bucket_creation=true"
    pafs.FileSystem.from_uri(f"s3://name:password@bucket?{options}")[0].create_dir("bucket")
    yield f"s3://name:password@bucket/{{}}?{options}"
    server.stop()


@pytest.fixture(scope="session")
def local_ray() -> Iterator[None]:
    import ray  # here: most tests do without

    from orchestration.fleet.ray_cluster import started

    with pytest.MonkeyPatch.context() as patch:
        # A runtime environment would do as well, but with one each actor begins with a process that starts another.
        patch.setenv("PYTHONPATH", f"{_ROOT}:{os.environ.get('PYTHONPATH', '')}")
        started(
            ray.init,
            address="local",
            num_cpus=16,
            include_dashboard=False,
            log_to_driver=False,
            object_store_memory=100 << 20,
        )
    yield
    ray.shutdown()

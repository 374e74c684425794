"""What all tests share: CUDA tests skip where there is no GPU, and one local Ray serves all that need one."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

_ROOT = Path(__file__).resolve().parents[1]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not torch.cuda.is_available():
        skip = pytest.mark.skip(reason="needs a GPU")
        for item in items:
            if item.get_closest_marker("cuda"):
                item.add_marker(skip)


@pytest.fixture(scope="session")
def local_ray() -> Iterator[None]:
    import ray  # here: most tests do without

    path = f"{_ROOT}:{os.environ.get('PYTHONPATH', '')}"
    ray.init(
        address="local",
        num_cpus=16,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=100 << 20,
        runtime_env={"env_vars": {"PYTHONPATH": path}},
    )
    yield
    ray.shutdown()

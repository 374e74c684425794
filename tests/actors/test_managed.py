"""An actor that is started often imports only what it needs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from actors.managed import Managed

HEAVY = {"ray.rllib", "pandas", "scipy.stats", "transformers", "deepspeed", "vllm", "mlflow"}


@pytest.mark.parametrize("module", ["actors.evaluator", pytest.param("actors.builder", marks=pytest.mark.slow)])
def test_the_start_of_an_actor_imports_no_heavy_package(module: str) -> None:
    code = f"import sys, {module}; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_manager_reaches_an_actor_by_functions() -> None:
    actor = Managed()
    assert actor.ping() == "pong"
    assert actor.apply(lambda self, one, *, two: (self, one, two), 1, two=2) == (actor, 1, 2)

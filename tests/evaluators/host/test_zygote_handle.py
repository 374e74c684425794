"""What a zygote prints neither blocks it nor is lost, and a value of any size reaches its runner."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from evaluators.failures import InfraError
from evaluators.host import runner_handle, zygote_handle
from evaluators.host.cpu_device import CpuDevice
from evaluators.host.zygote_handle import ZygoteHandle


@pytest.fixture
def at_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Lets the zygote run a text before anything else."""

    def write(text: str) -> ZygoteHandle:
        (tmp_path / "sitecustomize.py").write_text(text)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        monkeypatch.setattr(zygote_handle, "_ZYGOTE_START_SECONDS", 30.0)
        return ZygoteHandle(CpuDevice())

    return write


def test_a_zygote_that_prints_much_is_not_blocked(at_start) -> None:
    zygote = at_start("import sys; sys.stderr.write('x' * (1 << 20))")
    try:
        zygote.start()
    finally:
        zygote.close()


def test_a_zygote_that_does_not_start_says_why(at_start) -> None:
    zygote = at_start(
        "import os, sys; sys.stderr.write('x' * (1 << 20) + 'the reason'); sys.stderr.flush(); os._exit(1)"
    )
    with pytest.raises(InfraError, match="the reason") as raised:
        zygote.start()
    assert len(str(raised.value)) < 2000
    zygote.close()


def test_a_value_is_saved_whole_if_the_system_writes_a_part_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux writes at most 2 GiB at once."""
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, bytes(data[:1000])))
    value = torch.randn(5000)
    with runner_handle._saved([value]) as descriptor, os.fdopen(os.dup(descriptor), "rb") as file:
        assert torch.equal(torch.load(file)[0], value)

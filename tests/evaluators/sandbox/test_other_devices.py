"""A program reaches no device but its own: another GPU could do its work, or be disturbed in its own measurements."""

from __future__ import annotations

import pytest

from evaluators.evaluator import Evaluator
from evaluators.host.device import gpu_files
from tests.evaluators.sources import TWICE, model

READS_ZEROS = model(
    "return torch.tanh(x[0])", "raise ValueError(f\"read {len(open('/dev/zero', 'rb').read(4))} bytes\")", "ModelNew"
)
COUNTS_GPUS = '''
import os, subprocess, sys
environment = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
ask = """
import ctypes
count = ctypes.c_int()
try:
    driver = ctypes.CDLL("libcuda.so.1")
    driver.cuInit(0), driver.cuDeviceGetCount(ctypes.byref(count))
except OSError:
    pass
print(count.value)
"""
count = subprocess.run([sys.executable, "-c", ask], env=environment, capture_output=True, text=True, timeout=30)
raise ValueError(f"sees {count.stdout.strip()} GPUs")
'''


def test_the_file_of_a_hidden_device_is_empty(evaluator: Evaluator, monkeypatch: pytest.MonkeyPatch) -> None:
    before = evaluator.evaluate(TWICE, READS_ZEROS)
    monkeypatch.setattr(evaluator.device, "hidden", (*evaluator.device.hidden, "/dev/zero"))
    verdict = evaluator.evaluate(TWICE, f"{READS_ZEROS}\nagain = 1\n")
    if "read_only_host" not in before.evaluator["containment"].split():
        pytest.skip("nothing can be mounted here")
    assert "read 4 bytes" in before.message
    assert "read 0 bytes" in verdict.message


def test_a_program_sees_no_gpu_but_the_one_that_measures_it(evaluator: Evaluator) -> None:
    """Whatever it sets in its environment. On a CPU it sees none."""
    verdict = evaluator.evaluate(TWICE, COUNTS_GPUS)
    if "read_only_host" not in verdict.evaluator["containment"].split():
        pytest.skip("nothing can be mounted here")
    own = evaluator.device.arch != "cpu"
    assert len(evaluator.device.hidden) == len(gpu_files()) - own
    assert f"sees {int(own)} GPUs" in verdict.message, verdict.message

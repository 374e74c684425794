"""What the tests of reports share: a small finished run."""

from pathlib import Path

import pytest

from configs.schema import RunConfig
from orchestration.run.directory import RunDirectory
from orchestration.run.state import RunState
from tests.orchestration.report.samples import write_step


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    run = RunDirectory(tmp_path, "demo")
    run.write_config(RunConfig(name="demo", root=str(tmp_path)))
    write_step(run, "assess/base", 0, {"t1": [None, None], "t2": [None, None]})
    write_step(run, "assess/1-sft", 0, {"t1": [1.2, None], "t2": [None, None]})
    for step in (1, 2, 3):
        write_step(run, "1-self_supervised", step, {"t1": [1.1, None], "t2": [1.2, 0.9]})
        write_step(run, "1-contrastive_rl", step, {"t1": [1.5, 1.4], "t2": [1.2 + step, 0.9]})
        run.metrics.write("1-contrastive_rl", step, {"loss/kl": 0.01 * step, "loss": 1.0})
        run.metrics.write("1-sft", step, {"loss": 1.0})
    write_step(run, "assess/1-contrastive_rl", 0, {"t1": [1.5, 1.6], "t2": [2.0, None]})
    run.write_state(RunState(phase="contrastive_rl", step=3, finished=True))
    return run

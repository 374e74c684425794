"""Every command of docs/guides/kernelbench.md runs, in the order of the page, in a folder with what it speaks of."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from orchestration.commands.main import app
from tests.orchestration.commands.programs import SHIFT, SHIFTED_IN_PLACE
from tests.orchestration.kernelbench.numbered import write_numbered_run

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "kernelbench.md"
SOURCES = {  # of structures that differ, two tasks each
    (level, number): SHIFT.replace("torch.tanh(x) + 1", expression).replace("rows = 64", f"rows = {8 * number}")
    for level, expression in ((1, "torch.tanh(x) + 1"), (2, "torch.relu(x * x)"))
    for number in (1, 2)
}
WRONG = SHIFTED_IN_PLACE.replace("tanh", "sin")


def commands() -> list[str]:
    """The commands in the page's fences."""
    fences = re.findall(r"^```(\w*)\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [line for kind, fence in fences if not kind for line in fence.splitlines() if line]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with a run, the same tasks as Parquet, published programs and two runs of ours."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for (level, number), source in SOURCES.items():
        path = tmp_path / "KernelBench" / "KernelBench" / f"level{level}" / f"{number}_Name.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
        row = {"code": [source], "level": [level], "name": [f"{number}_Name"], "problem_id": [number]}
        (tmp_path / "kernelbench-data").mkdir(exist_ok=True)
        pq.write_table(pa.table(row), tmp_path / "kernelbench-data" / f"level_{level}-0000{number}-of-00002.parquet")
    theirs = tmp_path / "KernelBench" / "runs" / "theirs"
    theirs.mkdir(parents=True)
    for number, source in ((1, SHIFTED_IN_PLACE), (2, WRONG)):
        (theirs / f"level_1_problem_{number}_sample_0_kernel.py").write_text(source)
    published = {"level_id": 1, "task_id": 1, "custom_code": WRONG}
    (tmp_path / "kernels.jsonl").write_text(json.dumps(published))
    for shared in ("benchmarks", "docs"):
        (tmp_path / shared).symlink_to(GUIDE.parents[2] / shared)
    for name in ("mine", "other"):
        write_numbered_run(tmp_path / "runs", name)
    return tmp_path


@pytest.mark.slow
def test_every_command_of_the_guide_runs(place: Path) -> None:
    lines = commands()
    assert len(lines) >= 14
    for line in lines:
        name, *arguments = shlex.split(line)
        assert name == "warpsmith", line
        done = CliRunner().invoke(app, arguments)
        expected = 1 if "kernels.jsonl" in line else 0  # its only program is wrong
        assert done.exit_code == expected, f"{line}\n{done.output}"
    assert (place / "KernelBench" / "runs" / "mine-level1" / "eval_results.json").is_file()
    assert "Level 1 on a CPU" in (place / "board.html").read_text()

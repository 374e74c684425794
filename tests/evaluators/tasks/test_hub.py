"""A data set is fetched from a hub by its name: here from a server that answers as the hub does."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from evaluators.tasks import TaskError, load_tasks
from tests.evaluators.tasks.test_parquet import PROBLEMS, write

COMMIT = "a" * 40
FILE = "data/level_1-00000-of-00001.parquet"
NAME = "hf://datasets/Someone/KernelBench"
LIST = "import sys; from evaluators.tasks import load_tasks; print([task.id for task in load_tasks(sys.argv[1])])"
ROOT = Path(__file__).parents[3]


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[str]:
    """The address of a hub with one data set of one split."""
    content = write(tmp_path / "hub" / FILE, PROBLEMS[:2]).read_bytes()

    class Hub(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path.endswith(f"/{FILE}"):
                self._answer(content, "application/octet-stream")
            elif "/Someone/KernelBench" in path and "/tree/" in path:
                tree = [{"type": "file", "path": FILE, "size": len(content), "oid": "1"}]
                self._answer(json.dumps(tree).encode())
            elif "/Someone/KernelBench" in path:
                about = {"id": "Someone/KernelBench", "sha": COMMIT, "siblings": [{"rfilename": FILE}]}
                self._answer(json.dumps(about).encode())
            else:
                self.send_error(404)

        do_HEAD = do_GET

        def _answer(self, body: bytes, kind: str = "application/json") -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("ETag", f'"{hashlib.sha256(body).hexdigest()}"')
            self.send_header("X-Repo-Commit", COMMIT)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def listed(name: str, home: Path, **settings: str) -> str:
    """The ids that a process of its own lists, since the hub's settings are read when it is imported."""
    unset = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    environment = {**unset, "HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1", "PYTHONPATH": str(ROOT), **settings}
    done = subprocess.run(
        [sys.executable, "-c", LIST, name], env=environment, capture_output=True, text=True, timeout=300
    )
    return done.stdout.strip() or done.stderr.strip().splitlines()[-1]


@pytest.mark.slow  # three processes that import torch
def test_a_data_set_is_fetched_once_and_then_needs_no_network(endpoint: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert listed(NAME, home, HF_ENDPOINT=endpoint) == "['level1/1', 'level1/23']"
    assert listed(NAME, home, HF_HUB_OFFLINE="1") == "['level1/1', 'level1/23']"
    away = listed("hf://datasets/Someone/Else", home, HF_ENDPOINT=endpoint)
    assert "hf://datasets/Someone/Else: cannot be fetched (" in away
    assert "`hf download Someone/Else --repo-type dataset --local-dir FOLDER` fetches it" in away


@pytest.mark.parametrize("name", ["hf://Someone/KernelBench", "hf://datasets/KernelBench", "hf://datasets/a/b/c"])
def test_another_form_of_name_is_refused(name: str) -> None:
    with pytest.raises(TaskError, match=r"a data set on the hub is named hf://datasets/OWNER/NAME"):
        load_tasks(name)


def test_a_name_that_might_be_one_of_the_hub_says_so() -> None:
    with pytest.raises(TaskError, match="is it a data set on the hub\\? hf://datasets/Someone/KernelBench"):
        load_tasks("Someone/KernelBench")

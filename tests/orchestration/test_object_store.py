"""A run on an object store that goes away for a while goes on, and keeps a second driver out, with the real engines."""

from __future__ import annotations

import logging
import os
import secrets
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.fs as pafs
import pytest

from orchestration.run.directory import RunDirectory
from orchestration.run.lock import Holder
from tests.orchestration.processes import HANG_SECONDS, left_of, start, wait_for

SHORT = ["schedule.phases=[sft]", "sft.epochs=4", "tracking.enabled=false", "assessment.constant_policies=false"]
LEASE, OUTAGE = 6.0, 8.0  # seconds


class Store:
    """A server of an S3 interface, which keeps what it has while it is stopped."""

    def __init__(self) -> None:
        self._port = 0
        self.start()
        options = f"scheme=http&endpoint_override=127.0.0.1:{self._port}&allow_bucket_creation=true"
        bucket = f"away-{secrets.token_hex(4)}"  # its own: buckets outlast their server in this process
        self.root = f"s3://name:password@{bucket}/runs?{options}"
        pafs.FileSystem.from_uri(self.root)[0].create_dir(bucket)

    def start(self) -> None:
        from moto.server import ThreadedMotoServer  # here: it takes a second

        self._server = ThreadedMotoServer("127.0.0.1", port=self._port, verbose=False)
        self._server.start()
        self._port = self._server.get_host_and_port()[1]

    def stop(self) -> None:
        self._server.stop()


@pytest.fixture
def store() -> Iterator[Store]:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    made = Store()
    yield made
    made.stop()


@pytest.mark.slow
def test_a_run_outlasts_an_absent_store_and_keeps_a_second_driver_out(store: Store, tmp_path: Path) -> None:
    words = [*SHORT, f"root={store.root}", f"storage.lease={LEASE}"]
    run = RunDirectory(store.root, "small")
    first = start(tmp_path, *words)
    try:
        deadline = time.monotonic() + 240
        while run.holder() != Holder(first.pid, os.uname().nodename) and time.monotonic() < deadline:
            time.sleep(0.5)
        second = start(tmp_path, *words)  # while the first one starts its actors
        refused, _ = second.communicate(timeout=240)
        wait_for(first, run, "sft", 1)
        store.stop()
        time.sleep(OUTAGE)
        store.start()
        output, _ = first.communicate(timeout=HANG_SECONDS)
    finally:
        if first.poll() is None:
            os.killpg(first.pid, signal.SIGKILL)
    assert second.returncode == 2, refused
    assert f"process {first.pid} on {os.uname().nodename} is running in it" in " ".join(refused.split())
    assert first.returncode == 0, output
    assert "password@" not in output + refused
    state = run.read_state()
    assert state is not None
    assert state.finished
    assert state.checkpoint in run.checkpoints.paths()
    assert run.holder() is None
    assert run.storage.files("lease", ".json") == []
    assert left_of(tmp_path) == []

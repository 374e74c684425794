"""A Ray head that scales pretended nodes: Ray's own autoscaler over a rendered manifest, without Kubernetes.

It lives in a session of its own, with its folder and ports, so that it disturbs no other Ray on the machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.ports import free_ports

PORTS = ("port", "dashboard-port", "ray-client-server-port")
HEAD = "f" * 51 + "00000"  # the id that the provider of pretended nodes gives the head


def autoscaling(manifest: str, gcs_address: str) -> dict[str, Any]:
    """The autoscaler's configuration, as Ray translates a rendered `RayCluster`, for a provider of pretended nodes."""
    from ray.autoscaler._private.kuberay.autoscaling_config import _derive_autoscaling_config_from_ray_cr as derive

    (resource,) = (one for one in yaml.safe_load_all(manifest) if one["kind"] == "RayCluster")
    config = derive(resource)
    types = config["available_node_types"]
    types["ray.head.default"] = types.pop("headgroup")
    for node_type in types.values():
        node_type["resources"].pop("memory", None)
    provider = {
        "type": "external",
        "module": "ray.autoscaler._private.fake_multi_node.node_provider.FakeMultiNodeProvider",
        "gcs_address": gcs_address,
        "head_node_id": HEAD,
        "launch_multiple": True,
        "use_node_id_as_ip": True,
        "disable_node_updaters": True,
        "disable_launch_config_check": True,
    }
    return {**config, "provider": provider, "head_node_type": "ray.head.default"}


@contextlib.contextmanager
def pretended_cluster(manifest: str, environment: dict[str, str]) -> Iterator[dict[str, int]]:
    """The ports of the head, by the names of `ray start`. Everything ends with the block."""
    ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
    own = {
        "RAY_FAKE_CLUSTER": "1",
        "RAY_enable_autoscaler_v2": "1",
        "AUTOSCALER_UPDATE_INTERVAL_S": "1",
        "RAY_CLOUD_INSTANCE_ID": HEAD,
        "RAY_OVERRIDE_NODE_ID_FOR_TESTING": HEAD,
    }
    # The folder's path is short: paths of sockets in it may have at most 107 bytes.
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        file = Path(folder) / "autoscaling.json"
        file.write_text(json.dumps(autoscaling(manifest, f"{own_address()}:{ports['port']}")))
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", f"--temp-dir={folder}"]
        command += ["--num-cpus=0", f"--object-store-memory={100 << 20}", "--disable-usage-stats"]
        command += [f"--autoscaling-config={file}", "--dashboard-agent-listen-port=0"]
        command += [f"--{name}={port}" for name, port in ports.items()]
        with started(command, {**environment, **own}) as process:
            wait_for_dashboard(ports["dashboard-port"], process)
            yield ports


@contextlib.contextmanager
def started(command: list[str], environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A process in a session of its own, all of which ends with the block."""
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        yield process
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=30)
        end_session(process.pid)


def own_address() -> str:
    """The address that Ray gives this machine's nodes."""
    from ray.util import get_node_ip_address

    return get_node_ip_address()


def wait_for_dashboard(port: int, process: subprocess.Popen[str], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.2)
    pytest.fail(f"no dashboard on port {port} within {seconds} s")


def end_session(session: int) -> None:
    """Kills what is left of a session: the pretended nodes are its processes, too."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):
            if int((folder / "stat").read_text().rpartition(")")[2].split()[3]) == session:
                os.kill(int(folder.name), signal.SIGKILL)

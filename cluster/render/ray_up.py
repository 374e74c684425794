"""A `ray up` file for fixed hosts that are reached by ssh (the `local` provider)."""

from __future__ import annotations

import yaml

from cluster.errors import ClusterError
from cluster.render.common import object_name
from configs.schema import RunConfig

_INSTALL = ["make -C ~/warpsmith install"]
_INSTALL_FOR_GPUS = [  # as cluster/Dockerfile: `make install` installs the builds of torch and vLLM for CPUs
    "test -x ~/warpsmith/.venv/bin/python || python3.12 -m venv ~/warpsmith/.venv",
    "~/warpsmith/.venv/bin/pip install -q -r ~/warpsmith/requirements/gpu.txt",
    "~/warpsmith/.venv/bin/pip install -q --no-deps -e ~/warpsmith",
]
_START = "source ~/warpsmith/.venv/bin/activate && ulimit -n 65536 && ray start --disable-usage-stats"
_END = "~/warpsmith/.venv/bin/ray stop || true"


def ray_up(config: RunConfig) -> str:
    """The file, for `ray up` in a checkout. The dashboard listens on the head alone; `ray dashboard` forwards it."""
    hosts = config.cluster.hosts
    if not hosts:
        raise ClusterError("cluster.hosts must name the hosts of a `ray up` file, the head first, got []")
    token = "export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH=~/.ray/auth_token"
    head = "--head --port=6379 --dashboard-host=127.0.0.1 --autoscaling-config=~/ray_bootstrap_config.yaml"
    content = {
        "cluster_name": object_name(config, 53),
        "provider": {"type": "local", "head_ip": hosts[0], "worker_ips": hosts[1:]},
        "auth": {"ssh_user": config.cluster.ssh_user},
        "min_workers": len(hosts) - 1,
        "max_workers": len(hosts) - 1,
        "upscaling_speed": 1.0,
        "idle_timeout_minutes": 60,
        "file_mounts": {"~/warpsmith": ".", "~/.ray/auth_token": "~/.ray/auth_token"},
        "rsync_exclude": ["/.git", "/.venv", "/runs", "/mlruns", "**/__pycache__"],
        "setup_commands": _INSTALL_FOR_GPUS if _has_gpus(config) else _INSTALL,
        "head_start_ray_commands": [_END, f"{token} && {_START} {head}"],
        "worker_start_ray_commands": [_END, f"{token} && {_START} --address=$RAY_HEAD_IP:6379"],
    }
    return yaml.safe_dump(content, sort_keys=False, width=120)


def _has_gpus(config: RunConfig) -> bool:
    """Whether hosts are expected to have GPUs."""
    archs = [config.evaluator.arch, *config.evaluation.archs]
    return bool(config.cluster.gpu_nodes) or any(arch != "cpu" for arch in archs)

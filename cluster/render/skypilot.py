"""A SkyPilot task: nodes of one kind from whichever cloud has them."""

from __future__ import annotations

from typing import Any

import yaml

from cluster.render.common import object_name, one_group, travelling_config
from configs.node_groups import parse_nodes
from configs.schema import RunConfig

_RUN = """\
export RAY_AUTH_MODE=token RAY_ADDRESS="$(echo "$SKYPILOT_NODE_IPS" | head -n1):6379"
if [ "$SKYPILOT_NODE_RANK" = 0 ]; then
  ray start --head --port=6379 --disable-usage-stats
  python -m orchestration.commands.main run ~/run.yaml
else
  until ray start --address="$RAY_ADDRESS" --disable-usage-stats --block; do sleep 5; done
fi
"""
_CONFIG = """\
cat > ~/run.yaml <<'END_OF_CONFIGURATION'
{text}END_OF_CONFIGURATION
"""


def skypilot(config: RunConfig) -> str:
    """The task. `sky launch --secret RAY_AUTH_TOKEN` passes the cluster's token, and credentials likewise.

    SkyPilot's own Ray has port 6380. `ray symmetric-run` would refuse to start beside it.
    """
    group, settings = one_group(config, "SkyPilot"), config.cluster
    resources: dict[str, Any] = {"use_spot": False}
    if settings.image:
        resources["image_id"] = f"docker:{settings.image}"
    if group is not None:
        resources["accelerators"] = {group.accelerator: group.gpus}
    else:
        resources |= {"cpus": f"{settings.cpus}+", "memory": f"{settings.memory_gib}+"}
    task = {
        "name": object_name(config, 53),
        "num_nodes": max(1, group.most if group is not None else parse_nodes(settings.cpu_nodes)[1]),
        "resources": resources,
        "setup": _CONFIG.format(text=travelling_config(config)),
        "run": _RUN,
    }
    return yaml.safe_dump(task, sort_keys=False, width=120)

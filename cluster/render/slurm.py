"""A Slurm batch script: nodes of one kind, Ray on all of them, the driver on the first."""

from __future__ import annotations

from cluster.render.common import object_name, one_group, travelling_config
from configs.node_groups import parse_nodes
from configs.schema import RunConfig

_SCRIPT = """\
#!/bin/bash
#SBATCH --job-name={name}
#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task={cpus}
#SBATCH --mem={memory}G
{gpus}#SBATCH --requeue
#SBATCH --open-mode=append
# Submit it in a folder that all nodes see, with the environment of Warpsmith active. The same script again resumes the
# run after its last commit, and so does Slurm if it requeues the job.
set -euo pipefail
umask 077
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN="$(python -c 'import secrets; print(secrets.token_hex(32))')"
cat > {name}.yaml <<'END_OF_CONFIGURATION'
{text}END_OF_CONFIGURATION
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n1)
address=$(getent ahostsv4 "$head" | awk '{{print $1; exit}}')
export RAY_ADDRESS="$address:6379"
srun --kill-on-bad-exit=1 ray symmetric-run --address "$RAY_ADDRESS" --min-nodes {nodes} -- \\
  python -m orchestration.commands.main run {name}.yaml
"""


def slurm(config: RunConfig) -> str:
    """The script, for `sbatch`."""
    group, settings = one_group(config, "Slurm"), config.cluster
    if group is None:
        nodes, cpus, memory, gpus = parse_nodes(settings.cpu_nodes)[1], settings.cpus, settings.memory_gib, ""
    else:
        nodes, gpus = group.most, f"#SBATCH --gres=gpu:{group.accelerator.lower()}:{group.gpus}\n"
        cpus, memory = settings.cpus_per_gpu * group.gpus, settings.memory_gib_per_gpu * group.gpus
    return _SCRIPT.format(
        name=object_name(config, 53),
        nodes=max(1, nodes),
        cpus=cpus,
        memory=memory,
        gpus=gpus,
        text=travelling_config(config),
    )

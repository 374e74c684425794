"""KubeRay manifests (v1.7): a `RayJob` that is the whole run, or a `RayCluster` to which runs are submitted.

Some rules are not in the CRD's schema but in the operator's code: no labels in rayStartParams, a node's resources in
one place, pods that are never restarted under autoscaler v2, names of bounded length, quantities as texts.
"""

from __future__ import annotations

from typing import Any

import yaml

from cluster.errors import ClusterError
from cluster.job import DIRECTORY, PATIENCE, RUN
from cluster.render.common import groups, object_name, ray_version, stop_seconds, travelling_config
from configs.node_groups import NodeGroup, parse_nodes
from configs.schema import RunConfig

LONGEST_CLUSTER, LONGEST_JOB = 53, 47  # characters; the operator appends to them
MOST_GROUPS = 17  # that Kueue admits
CONFIG_FOLDER = "/etc/warpsmith"
METRICS_PORT = 8080  # that the operator gives Ray's agents for Prometheus

_QUEUE = "kueue.x-k8s.io/queue-name"
_ELASTIC = "kueue.x-k8s.io/elastic-job"
_POD = "warpsmith/run"  # label of all pods of a run, by which the network policy knows them


def ray_job(config: RunConfig) -> str:
    """A `RayJob` that brings a cluster up, trains on it, resumes up to three times, and takes it down."""
    name = object_name(config, LONGEST_JOB)
    text = travelling_config(config)
    head_volume = {"name": "config", "configMap": {"name": f"{name}-config"}}
    spec = {
        "entrypoint": f"python -m orchestration.commands.main run {CONFIG_FOLDER}/run.yaml",
        "submissionMode": "HTTPMode",
        "backoffLimit": 3,
        "shutdownAfterJobFinishes": True,
        "ttlSecondsAfterFinished": 600,
        "metadata": {RUN: config.name, DIRECTORY: f"{config.root.partition('?')[0].rstrip('/')}/{config.name}"},
        "runtimeEnvYAML": yaml.safe_dump({"env_vars": {PATIENCE: str(stop_seconds(config))}}),
        "rayClusterSpec": _cluster_spec(config, name, head_volume),
    }
    configuration = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{name}-config", "namespace": config.cluster.namespace},
        "data": {"run.yaml": text},
    }
    return _documents(configuration, _network_policy(config, name), _object("RayJob", config, name, spec))


def ray_cluster(config: RunConfig) -> str:
    """A `RayCluster` that scales from zero with what submitted runs ask for."""
    name = object_name(config, LONGEST_CLUSTER)
    travelling_config(config)  # for what it refuses
    return _documents(
        _network_policy(config, name), _object("RayCluster", config, name, _cluster_spec(config, name, None))
    )


def _documents(*objects: dict[str, Any]) -> str:
    return yaml.safe_dump_all(objects, sort_keys=False, width=120)


def _object(kind: str, config: RunConfig, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    """A custom resource, which waits in Kueue's queue if there is one."""
    metadata: dict[str, Any] = {"name": name, "namespace": config.cluster.namespace}
    if config.cluster.queue:
        metadata |= {"labels": {_QUEUE: config.cluster.queue}, "annotations": {_ELASTIC: "true"}}
    return {"apiVersion": "ray.io/v1", "kind": kind, "metadata": metadata, "spec": spec}


def _network_policy(config: RunConfig, name: str) -> dict[str, Any]:
    """Only the run's own pods and the operator reach its pods, since whoever reaches the dashboard may run code there;
    and a Prometheus that is named reaches the port of metrics."""
    own = {"matchLabels": {_POD: name}}
    operator = {
        "namespaceSelector": {},
        "podSelector": {"matchLabels": {"app.kubernetes.io/name": "kuberay-operator"}},
    }
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name, "namespace": config.cluster.namespace},
        "spec": {
            "podSelector": own,
            "policyTypes": ["Ingress"],
            "ingress": [{"from": [{"podSelector": own}, operator]}, *_metrics_readers(config.cluster.prometheus)],
        },
    }


def _metrics_readers(label: str) -> list[dict[str, Any]]:
    """The rule that lets pods with a label, `KEY=VALUE`, reach metrics; none without one. Raises ClusterError."""
    if not label:
        return []
    key, _, value = label.partition("=")
    if not key or not value:
        raise ClusterError(f"cluster.prometheus must be LABEL=VALUE of the pods of a Prometheus, got {label!r}")
    pods = {"namespaceSelector": {}, "podSelector": {"matchLabels": {key: value}}}
    return [{"from": [pods], "ports": [{"protocol": "TCP", "port": METRICS_PORT}]}]


def _cluster_spec(config: RunConfig, name: str, head_volume: dict[str, Any] | None) -> dict[str, Any]:
    settings = config.cluster
    if not settings.image:
        raise ClusterError("cluster.image must name a container image with Warpsmith for KubeRay, got ''")
    workers = [_gpu_group(config, name, group) for group in groups(config)]
    least, most = parse_nodes(settings.cpu_nodes)
    if most:
        pod = _pod(config, name, settings.cpus, settings.memory_gib)
        workers.append(_worker_group("cpu", least, most, {"warpsmith/role": "builders"}, pod))
    if not workers:
        raise ClusterError("cluster.gpu_nodes and cluster.cpu_nodes leave no node that could work; name some")
    if settings.queue and len(workers) > MOST_GROUPS:
        raise ClusterError(f"cluster.gpu_nodes: Kueue admits {MOST_GROUPS} groups of nodes, got {len(workers)}")
    head = _pod(config, name, settings.head_cpus, settings.head_memory_gib, volume=head_volume)
    spec: dict[str, Any] = {
        "rayVersion": ray_version(),
        "authOptions": {"mode": "token"},
        "enableInTreeAutoscaling": True,
        "autoscalerOptions": {
            "version": "v2",
            "upscalingMode": "Default",
            "idleTimeoutSeconds": settings.idle_seconds,
        },
        "headGroupSpec": {
            "serviceType": "ClusterIP",
            "rayStartParams": {"num-cpus": "0", "dashboard-host": "0.0.0.0"},
            "template": head,
        },
        "workerGroupSpecs": workers,
    }
    if settings.redis:
        spec["gcsFaultToleranceOptions"] = _fault_tolerance(config, name)
    return spec


def _fault_tolerance(config: RunConfig, name: str) -> dict[str, Any]:
    """The head's state in Redis, so that nodes and actors outlive a restart of the head."""
    options: dict[str, Any] = {"redisAddress": config.cluster.redis, "externalStorageNamespace": name}
    if config.cluster.redis_secret:
        key = {"secretKeyRef": {"name": config.cluster.redis_secret, "key": "password"}}
        options["redisPassword"] = {"valueFrom": key}
    return options


def _gpu_group(config: RunConfig, name: str, group: NodeGroup) -> dict[str, Any]:
    settings = config.cluster
    cores, memory = settings.cpus_per_gpu * group.gpus, settings.memory_gib_per_gpu * group.gpus
    pod = _pod(config, name, cores, memory, gpus=group.gpus)
    pod["spec"]["tolerations"] = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    if group.selector is not None:
        pod["spec"]["nodeSelector"] = dict([group.selector])
    labels = {"ray.io/accelerator-type": group.accelerator}
    title = f"{group.accelerator.lower()}-x{group.gpus}"
    return _worker_group(title, group.least, group.most, labels, pod)


def _worker_group(name: str, least: int, most: int, labels: dict[str, str], pod: dict[str, Any]) -> dict[str, Any]:
    return {
        "groupName": name,
        "replicas": least,
        "minReplicas": least,
        "maxReplicas": most,
        "labels": labels,
        "rayStartParams": {},
        "template": pod,
    }


def _pod(
    config: RunConfig, name: str, cpus: int, memory_gib: int, *, gpus: int = 0, volume: dict[str, Any] | None = None
) -> dict[str, Any]:
    """A pod of one container. Requests are limits, so that nobody else takes the cores that programs are timed on.

    A volume of its own, given for the head alone, is mounted at CONFIG_FOLDER.
    """
    settings = config.cluster
    resources = {"cpu": str(cpus), "memory": f"{memory_gib}Gi"} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
    volumes: list[dict[str, Any]] = [
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{max(1, memory_gib // 3)}Gi"}}
    ]
    mounts = [{"name": "shm", "mountPath": "/dev/shm"}]
    if volume is not None:
        volumes.append(volume)
        mounts.append({"name": volume["name"], "mountPath": CONFIG_FOLDER})
    if "://" not in config.root:
        if not settings.volume_claim:
            raise ClusterError(f"root={config.root}: a path needs cluster.volume_claim, which all nodes mount there")
        volumes.append({"name": "runs", "persistentVolumeClaim": {"claimName": settings.volume_claim}})
        mounts.append({"name": "runs", "mountPath": config.root})
    container: dict[str, Any] = {
        "name": "ray",
        "image": settings.image,
        "resources": {"limits": dict(resources), "requests": dict(resources)},
        "volumeMounts": mounts,
    }
    if settings.secret:
        container["envFrom"] = [{"secretRef": {"name": settings.secret}}]
    if settings.capabilities:
        container["securityContext"] = {"capabilities": {"add": list(settings.capabilities)}}
    pod = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": stop_seconds(config),
        "containers": [container],
        "volumes": volumes,
    }
    return {"metadata": {"labels": {_POD: name}}, "spec": pod}

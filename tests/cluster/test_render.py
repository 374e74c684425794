"""Rendered manifests: against KubeRay's own schemas, the rules of its operator, Ray's translation, and the shells."""

from __future__ import annotations

import copy
import gzip
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from cluster.job import CHECKOUT
from cluster.render import FORMATS
from configs.load import load_config, parse_config
from orchestration.commands.main import app

CRDS = Path(os.environ.get("KUBERAY_CRDS", CHECKOUT.parent / "shared" / "data" / "kuberay"))
ROOT = ("root=s3://bucket/runs", "cluster.image=registry.example/warpsmith:1")
MIXED = (
    "cluster.gpu_nodes=[H100x8:0-4@nvidia.com/gpu.product=NVIDIA-H100-80GB-HBM3,L40Sx1:1-8@pool=l40s]",
    "cluster.secret=s3-and-mlflow",
    "cluster.capabilities=[SYS_ADMIN]",
    "cluster.redis=redis:6379",
    "cluster.redis_secret=redis",
    "cluster.queue=gpus",
)
CASES = {"mixed": (*ROOT, *MIXED), "cpu": ROOT, "volume": ("root=/shared", ROOT[1], "cluster.volume_claim=runs")}


def rendered(form: str, *overrides: str) -> str:
    return FORMATS[form](load_config("local", overrides))


def objects(form: str, *overrides: str) -> dict[str, dict[str, Any]]:
    """The rendered objects by their kinds."""
    return {one["kind"]: one for one in yaml.safe_load_all(rendered(form, *overrides))}


def cluster_spec(form: str, *overrides: str) -> dict[str, Any]:
    made = objects(form, *overrides)
    return made["RayJob"]["spec"]["rayClusterSpec"] if form == "rayjob" else made["RayCluster"]["spec"]


def strict(schema: dict[str, Any]) -> dict[str, Any]:
    """A CRD's schema that refuses what Kubernetes would drop in silence."""
    for key in ("properties", "additionalProperties", "items"):
        part = schema.get(key)
        for inner in part.values() if key == "properties" and part else [part]:
            if isinstance(inner, dict):
                strict(inner)
    if "properties" in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
        schema.setdefault("additionalProperties", False)
    return schema


def with_defaults(value: Any, schema: dict[str, Any]) -> Any:
    """What the API server makes of a value before it validates it."""
    if isinstance(value, dict):
        for key, inner in schema.get("properties", {}).items():
            if key not in value and "default" in inner:
                value[key] = copy.deepcopy(inner["default"])
            if key in value:
                with_defaults(value[key], inner)
    elif isinstance(value, list):
        for one in value:
            with_defaults(one, schema.get("items", {}))
    return value


def schema_of(kind: str) -> dict[str, Any]:
    file = CRDS / f"ray.io_{kind.lower()}s.yaml.gz"
    if not file.is_file():
        pytest.skip(f"needs KubeRay's CRDs: {file} (KUBERAY_CRDS names their folder)")
    text = gzip.decompress(file.read_bytes())
    versions = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))["spec"]["versions"]
    return next(version["schema"]["openAPIV3Schema"] for version in versions if version["name"] == "v1")


@pytest.mark.parametrize(("form", "kind"), [("rayjob", "RayJob"), ("raycluster", "RayCluster")])
def test_manifests_are_what_the_operator_declares(form: str, kind: str) -> None:
    from jsonschema import Draft202012Validator

    schema = schema_of(kind)
    schema["properties"]["metadata"] = {"type": "object"}
    strict(schema)
    validator = Draft202012Validator(schema)
    for overrides in CASES.values():
        made = with_defaults(objects(form, *overrides)[kind], schema)
        assert [f"{list(error.path)}: {error.message}" for error in validator.iter_errors(made)] == []
    made["spec"]["unknown"] = 1
    assert not validator.is_valid(made), "the schema refuses nothing"


@pytest.mark.parametrize("form", ["rayjob", "raycluster"])
@pytest.mark.parametrize("case", CASES)
def test_the_operators_own_rules_hold(form: str, case: str) -> None:
    spec = cluster_spec(form, *CASES[case])
    assert spec["autoscalerOptions"]["version"] == "v2"
    assert tuple(map(int, spec["rayVersion"].split(".")[:2])) >= (2, 52), "tokens need it"
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        pod = group["template"]["spec"]
        assert pod["restartPolicy"] == "Never"
        assert "labels" not in group["rayStartParams"]
        assert "resources" not in group
        (container,) = pod["containers"]
        assert all(isinstance(value, str) for value in container["resources"]["limits"].values())
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
    for group in spec["workerGroupSpecs"]:
        assert 0 <= group["minReplicas"] == group["replicas"] <= group["maxReplicas"] >= 1
    names = [group["groupName"] for group in spec["workerGroupSpecs"]]
    assert len(set(names)) == len(names) <= 17


def test_a_job_resumes_ends_its_cluster_and_waits_in_the_queue() -> None:
    job = objects("rayjob", *CASES["mixed"])["RayJob"]
    assert job["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "gpus"}
    assert job["metadata"]["annotations"] == {"kueue.x-k8s.io/elastic-job": "true"}
    assert job["spec"]["shutdownAfterJobFinishes"] is True
    assert job["spec"]["backoffLimit"] > 0
    assert "clusterSelector" not in job["spec"]
    assert yaml.safe_load(job["spec"]["runtimeEnvYAML"]) == {"env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": "120"}}


def test_the_job_reads_the_configuration_that_was_given() -> None:
    made = objects("rayjob", *ROOT, "name=first", "seed=7")
    carried = parse_config(made["ConfigMap"]["data"]["run.yaml"], "run.yaml").config
    assert carried == load_config("local", [*ROOT, "name=first", "seed=7"])
    head = made["RayJob"]["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]
    (mount,) = [mount for mount in head["containers"][0]["volumeMounts"] if mount["name"] == "config"]
    assert made["RayJob"]["spec"]["entrypoint"].endswith(f"{mount['mountPath']}/run.yaml")


def test_only_the_runs_pods_and_the_operator_reach_its_pods() -> None:
    made = objects("raycluster", *CASES["mixed"])
    policy, spec = made["NetworkPolicy"]["spec"], made["RayCluster"]["spec"]
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        own = policy["podSelector"]["matchLabels"].items()
        assert own <= group["template"]["metadata"]["labels"].items()
    assert policy["policyTypes"] == ["Ingress"]
    assert len(policy["ingress"][0]["from"]) == 2
    assert spec["authOptions"] == {"mode": "token"}
    assert spec["headGroupSpec"]["serviceType"] == "ClusterIP"


def test_a_named_prometheus_reaches_the_port_of_metrics_alone() -> None:
    made = objects("raycluster", *ROOT, "cluster.prometheus=app.kubernetes.io/name=prometheus")
    first, second = made["NetworkPolicy"]["spec"]["ingress"]
    assert first == objects("raycluster", *ROOT)["NetworkPolicy"]["spec"]["ingress"][0]
    (sender,) = second["from"]
    assert sender["podSelector"] == {"matchLabels": {"app.kubernetes.io/name": "prometheus"}}
    assert second["ports"] == [{"protocol": "TCP", "port": 8080}]


def test_ray_reads_types_gpus_and_labels_from_a_manifest() -> None:
    from ray.autoscaler._private.kuberay.autoscaling_config import _derive_autoscaling_config_from_ray_cr as derive

    types = derive(objects("raycluster", *CASES["mixed"])["RayCluster"])["available_node_types"]
    assert types.keys() == {"headgroup", "h100-x8", "l40s-x1", "cpu"}
    found = {name: (one["min_workers"], one["max_workers"], one["resources"].get("GPU")) for name, one in types.items()}
    assert found == {"headgroup": (0, 0, None), "h100-x8": (0, 4, 8), "l40s-x1": (1, 8, 1), "cpu": (0, 4, None)}
    assert types["h100-x8"]["labels"] == {"ray.io/accelerator-type": "H100"}
    assert types["l40s-x1"]["labels"] == {"ray.io/accelerator-type": "L40S"}
    assert types["headgroup"]["resources"]["CPU"] == 0, "roles would land beside the driver"


def test_ray_accepts_the_ray_up_file() -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    config = yaml.safe_load(rendered("ray-up", "cluster.hosts=[192.0.2.10,192.0.2.11]"))
    validate_config(prepare_config(config))
    assert config["provider"] == {"type": "local", "head_ip": "192.0.2.10", "worker_ips": ["192.0.2.11"]}


GPUS = {
    "programs are measured there": ["evaluator.arch=H100"],
    "some are measured there, too": ["evaluation.archs.L40S.workers=1"],
    "the cluster has some": ["cluster.gpu_nodes=[H100x8:0-2]"],
}


@pytest.mark.parametrize("words", [[], *GPUS.values()], ids=["no GPU", *GPUS])
def test_hosts_with_gpus_get_the_versions_of_the_image(words: list[str]) -> None:
    config = yaml.safe_load(rendered("ray-up", "cluster.hosts=[192.0.2.10]", *words))
    if not words:
        assert config["setup_commands"] == ["make -C ~/warpsmith install"]
        return
    *before, code = config["setup_commands"]
    image = (CHECKOUT / "cluster" / "Dockerfile").read_text()
    for part in ("python3.12 -m venv", "requirements/gpu.txt"):
        assert part in " ".join(before)
        assert part in image
    assert "pip install" in code
    assert "--no-deps" in code
    assert "make" not in " ".join(config["setup_commands"]), "which installs the build for CPUs"
    for command in config["setup_commands"]:
        subprocess.run(["bash", "-n", "-c", command], check=True)


def shells() -> Iterator[tuple[str, str]]:
    one = (*ROOT, "cluster.gpu_nodes=[A100x4:2-2]", "name=It's one")
    yield "slurm", rendered("slurm", *one)
    task = yaml.safe_load(rendered("skypilot", *one))
    assert (task["num_nodes"], task["resources"]["accelerators"]) == (2, {"A100": 4})
    yield "skypilot", task["setup"] + task["run"]


def test_scripts_are_shell_that_writes_the_configuration(tmp_path: Path) -> None:
    for name, script in shells():
        file = tmp_path / name
        file.write_text(script)
        subprocess.run(["bash", "-n", str(file)], check=True)
        text = script.split("<<'END_OF_CONFIGURATION'\n")[1].split("END_OF_CONFIGURATION\n")[0]
        assert parse_config(text, name).config.name == "It's one"
    assert "#SBATCH --gres=gpu:a100:4\n" in rendered("slurm", *ROOT, "cluster.gpu_nodes=[A100x4:2-2]")


@pytest.mark.parametrize(
    ("form", "overrides", "expected"),
    [
        ("rayjob", ["cluster.gpu_nodes=[H100]", *ROOT], "must be like H100x8:0-4"),
        ("rayjob", ["cluster.gpu_nodes=[H100x8:4-0]", *ROOT], "must be like H100x8:0-4"),
        ("rayjob", ["cluster.gpu_nodes=[H100x8:0-4,A100x8:0-4]", *ROOT], "must name the label of its nodes"),
        ("rayjob", ["cluster.gpu_nodes=[H100x8:0-4@a=b,H100x8:0-9@a=b]", *ROOT], "two groups of one kind"),
        ("rayjob", ["cluster.cpu_nodes=4", *ROOT], "fewest and most nodes"),
        ("rayjob", ["cluster.cpu_nodes=0-0", *ROOT], "leave no node that could work"),
        ("rayjob", ["root=s3://bucket/runs"], "cluster.image"),
        ("rayjob", ["root=s3://key:secret@bucket/runs", ROOT[1]], "root: has a login"),
        ("rayjob", [ROOT[1]], "root=runs: give a URI"),
        ("rayjob", [ROOT[1], "root=/shared"], "cluster.volume_claim"),
        ("rayjob", [*ROOT, f"name={'a' * 48}"], "the operator takes 47"),
        ("raycluster", [*ROOT, "name=1st"], "must begin with a letter"),
        ("raycluster", [*ROOT, "cluster.prometheus=prometheus"], "cluster.prometheus must be LABEL=VALUE"),
        ("slurm", [*CASES["mixed"]], "a job of Slurm has nodes of one kind, got 2"),
        ("ray-up", [*ROOT], "cluster.hosts"),
        ("slurm", [*ROOT, "tasks.include=[level1/5]"], "level1/5 is not among the tasks of bundled"),
        ("helm", [*ROOT], "--format must be one of rayjob, raycluster, ray-up, skypilot, slurm"),
    ],
)
def test_what_cannot_be_rendered_is_refused_in_one_line(form: str, overrides: list[str], expected: str) -> None:
    done = CliRunner().invoke(app, ["cluster", "render", "local", *overrides, "--format", form])
    assert done.exit_code == 2, done.output
    assert expected in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stdout == ""


def test_tasks_that_only_the_nodes_have_are_not_looked_for(tmp_path: Path) -> None:
    words = [*ROOT, f"tasks.source=bundled,{tmp_path}/absent.jsonl", "tasks.include=[level1/5]"]
    done = CliRunner().invoke(app, ["cluster", "render", "local", *words])
    assert done.exit_code == 0, done.output


def test_the_command_prints_the_manifest() -> None:
    done = CliRunner().invoke(app, ["cluster", "render", "local", *CASES["mixed"], "--format", "rayjob"])
    assert done.exit_code == 0, done.output
    assert done.stdout == rendered("rayjob", *CASES["mixed"])

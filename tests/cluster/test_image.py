"""The image's file asks for what there is, in versions that the project allows. No image is built here."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = (ROOT / "cluster/Dockerfile").read_text()


def pinned(name: str) -> dict[str, str]:
    lines = (ROOT / name).read_text().splitlines()
    return dict(line.split("==") for line in lines if "==" in line and not line.startswith("#"))


def test_what_is_copied_is_there() -> None:
    copied = [line.split()[1] for line in DOCKERFILE.splitlines() if line.startswith("COPY")]
    assert "requirements/gpu.txt" in copied
    assert all((ROOT / place).exists() for place in copied)


def test_the_versions_are_those_that_the_project_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    versions = pinned("requirements/gpu.txt")
    for line in [*project["dependencies"], *project["optional-dependencies"]["gpu"]]:
        wanted = Requirement(line)
        assert wanted.specifier.contains(versions[wanted.name]), line


def test_the_cluster_speaks_with_the_version_of_ray_that_submits() -> None:
    image, own = pinned("requirements/gpu.txt"), pinned("constraints.txt")
    for name in ("ray", "deepspeed", "mlflow", "transformers"):
        assert image[name] == own[name]


def test_its_python_and_its_cuda_are_those_of_the_versions() -> None:
    (python,) = set(re.findall(r"python(3\.\d+)", DOCKERFILE))
    assert f"(Python {python}, x86-64, CUDA 13)" in (ROOT / "requirements/gpu.txt").read_text()
    assert re.search(r"^FROM nvidia/cuda:13\.", DOCKERFILE, re.MULTILINE)

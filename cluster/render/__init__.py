"""Manifests of a cluster for a run, all from the run's one configuration. Pure functions: no Ray, no I/O."""

from __future__ import annotations

from cluster.render.kuberay import ray_cluster, ray_job
from cluster.render.ray_up import ray_up
from cluster.render.skypilot import skypilot
from cluster.render.slurm import slurm

FORMATS = {"rayjob": ray_job, "raycluster": ray_cluster, "ray-up": ray_up, "skypilot": skypilot, "slurm": slurm}
"""By the names of `warpsmith cluster render --format`: functions of a configuration that return the file's text."""

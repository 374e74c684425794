"""An evaluator as a Ray actor: one measuring slot of one host, one verdict at a time."""

from __future__ import annotations

import hashlib
import logging
import socket
from dataclasses import replace
from pathlib import Path

import ray
import torch

from actors.evaluation import EvaluationRequest, SameDevice
from actors.log_fields import log_fields, name_role
from actors.managed import Managed
from configs.schema import EvaluatorConfig
from evaluators.compile.cache import BuildCache
from evaluators.evaluator import Evaluator
from evaluators.failures import Unbuilt
from evaluators.host.device import Device
from evaluators.records import Verdict
from evaluators.stored.verdicts import DEVICE, REUSED_FROM

_log = logging.getLogger(__name__)


def make_evaluator(config: EvaluatorConfig, store: str, *, guarded: bool = True) -> Evaluator:
    """The evaluator of a run. It builds nothing itself: builders do. `store`: the folder that all of them share."""
    return Evaluator(
        config.arch,
        preset=config.preset,
        threads=config.threads,
        baselines=config.baselines,
        limits=config.limits,
        require_shapes=config.require_shapes,
        strict=config.strict,
        require_containment=config.require_containment,
        store=Path(store),
        cache=BuildCache.of(Path(store), config),
        builds=False,
        guarded=guarded,
        verdicts_of=config.verdicts_of,
        measures_baselines=config.measure_baselines == "always",
    )


def device_id(device: Device) -> str:
    """What tells a device from others of its kind: the UUID of a GPU; on `cpu` a digest of the host's name and of the
    GPUs that Ray has reserved, so that nodes that pretend to have some have as many devices."""
    if device.torch_device.type == "cuda":
        return f"GPU-{torch.cuda.get_device_properties(device.torch_device).uuid}"
    reserved = ray.get_runtime_context().get_accelerator_ids().get("GPU", [])
    return f"cpu-{hashlib.sha256(' '.join([socket.gethostname(), *reserved]).encode()).hexdigest()[:8]}"


@ray.remote(num_cpus=1)
class EvaluatorActor(Managed):
    """Holds one `Evaluator`, whose processes end with this actor."""

    def __init__(self, config: EvaluatorConfig, store: str, guarded: bool = True, place: int = 0) -> None:
        """`place`: its own in the pool."""
        name_role("evaluator", arch=config.arch)
        self._place = place
        self._evaluator = make_evaluator(config, store, guarded=guarded)
        self._evaluator.start()
        self._device = device_id(self._evaluator.device)

    def versions(self) -> dict[str, str]:
        """The software and hardware that its timings depend on."""
        return dict(self._evaluator.device.versions())

    def evaluate(self, request: EvaluationRequest) -> Verdict | Unbuilt | SameDevice:
        """Judges one candidate, or returns what it lacks: an extension, its artifact, or another device. Never raises
        for anything a candidate does."""
        candidate = request.candidate
        if self._device == request.not_on:
            return SameDevice(self._place)
        with log_fields(candidate=candidate.digest, task=request.task.id, **request.log_fields):
            try:
                verdict = self._evaluator.evaluate(
                    request.task,
                    candidate.source,
                    preset=request.preset,
                    author=candidate.author,
                    artifact=request.artifact,
                    passed_look=request.passed_look,
                    again=request.again,
                )
            except Unbuilt as missing:
                return missing
            _log.info("judged: %s, in %.1f s", verdict.outcome, verdict.cost.get("total", 0.0))
            if REUSED_FROM in verdict.evaluator:
                return verdict
            return replace(verdict, evaluator={**verdict.evaluator, DEVICE: self._device})

"""DeepSpeed around the trained policy: one optimiser step over a rank's micro-batches, its metrics merged over ranks.

Every collective of training runs in here. Knows nothing of what an objective computes.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, distributed, nn

from configs.schema import LearnerConfig
from learners.batching import Batch
from learners.deepspeed_config import deepspeed_config
from learners.disk_adam import DiskAdamW
from learners.errors import LearnerError
from learners.host_memory import trim
from learners.losses import LossOutputs
from learners.micro_batches import MicroBatch
from learners.scoring import TokenScorer

_BETAS = (0.9, 0.95)  # AdamW's


class Optimiser:
    """AdamW through DeepSpeed at `config.zero_stage`. `engine` is DeepSpeed's: a scorer that gathers its weights."""

    def __init__(
        self, deepspeed: Any, scorer: TokenScorer, config: LearnerConfig, device: torch.device, world_size: int
    ) -> None:
        """`deepspeed`: the module, from `import_deepspeed`."""
        self._deepspeed, self._config, self._device, self._world_size = deepspeed, config, device, world_size
        self._gradient_norm = 0.0
        self.engine = self._wrap(scorer)

    def step(
        self, work: Sequence[MicroBatch], objective: Callable[[MicroBatch], LossOutputs], learning_rate: float
    ) -> dict[str, float]:
        """One optimiser step over this rank's micro-batches.

        Returns the step's metrics over all ranks, `gradient_norm` and `learning_rate`. Raises LearnerError if the norm
        is not finite; the weights are unchanged then.
        """
        for group in self.engine.optimizer.param_groups:
            group["lr"] = learning_rate
        self.engine.train()
        outputs = []
        for item in work:
            result = objective(item)
            # The loss is a share of the whole step's, to be summed; DeepSpeed averages over ranks.
            self.engine.backward(result.loss * self._world_size)
            outputs.append(result.metrics)
        self.engine.step()
        metrics = self._merge(outputs)
        if self._device.type == "cpu":
            trim()
        norm = self._gradient_norm if self._config.zero_stage == 0 else float(self.engine.get_global_grad_norm())
        return {
            **metrics,
            "gradient_norm": _finite(norm),
            "learning_rate": float(self.engine.optimizer.param_groups[0]["lr"]),
        }

    def gather(self, parameters: Sequence[Tensor]) -> contextlib.AbstractContextManager[Any]:
        """Within this context the values of `parameters` are whole on every rank. All ranks must enter it."""
        if self._config.zero_stage < 3:
            return contextlib.nullcontext()
        return self._deepspeed.zero.GatheredParameters(parameters)

    def close(self) -> None:
        """Frees the optimiser's state."""
        self.engine.destroy()

    def _wrap(self, scorer: TokenScorer) -> Any:
        config = self._config
        trainable = [parameter for parameter in scorer.parameters() if parameter.requires_grad]
        # Decay is for matrices: it would only pull norms and biases off their place.
        groups = [
            {"params": [p for p in trainable if p.dim() > 1], "weight_decay": config.weight_decay},
            {"params": [p for p in trainable if p.dim() <= 1], "weight_decay": 0.0},
        ]
        settings: dict[str, Any] = {"lr": 0.0, "betas": _BETAS, "fused": True}
        groups = [group for group in groups if group["params"]]
        optimizer: torch.optim.AdamW
        if config.offload_optimizer == "nvme":
            optimizer = DiskAdamW(groups, config.nvme_path, **settings)
        else:
            optimizer = torch.optim.AdamW(groups, **settings)
        if config.zero_stage == 0:
            optimizer.register_step_pre_hook(lambda *_: self._clip(trainable))
        size = sum(parameter.numel() for parameter in trainable)
        asked = deepspeed_config(config, size, max(parameter.numel() for parameter in scorer.parameters()))
        engine, *_ = self._deepspeed.initialize(
            model=scorer, optimizer=optimizer, config=asked, dist_init_required=False
        )
        return engine

    def _clip(self, parameters: Sequence[nn.Parameter]) -> None:
        """Clips the reduced gradients at stage 0. At other stages DeepSpeed clips, and reports the norm itself."""
        norm = nn.utils.clip_grad_norm_(parameters, self._config.gradient_clip or math.inf)
        self._gradient_norm = float(norm)
        if not math.isfinite(self._gradient_norm):
            for parameter in parameters:
                parameter.grad = None  # AdamW skips it, so the step changes nothing, as with DeepSpeed at other stages

    def _merge(self, outputs: Sequence[dict[str, Tensor]]) -> dict[str, float]:
        """Adds the shares of the micro-batches and ranks. Of a metric ending in `_max` it takes the maximum."""
        names = sorted(outputs[0])
        stacked = torch.stack([torch.stack([metrics[name].float() for name in names]) for metrics in outputs])
        total, maximum = stacked.sum(dim=0), stacked.amax(dim=0)
        if self._world_size > 1:
            distributed.all_reduce(total)
            distributed.all_reduce(maximum, op=distributed.ReduceOp.MAX)
        merged = zip(names, total.tolist(), maximum.tolist(), strict=True)
        return {name: highest if name.endswith("_max") else added for name, added, highest in merged}


@torch.no_grad()
def logprobs_of(scorer: Any, batch: Batch, temperature: float) -> Tensor:
    """Log-probabilities of the batch's targets, [tokens], without a gradient."""
    return scorer(batch=batch, temperature=temperature)[0]


def _finite(norm: float) -> float:
    """The gradient norm. Raises LearnerError if it is not finite."""
    if not math.isfinite(norm):
        raise LearnerError(f"the gradient norm is {norm}: lower the learning rate, or continue from a checkpoint")
    return norm

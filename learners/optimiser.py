"""DeepSpeed around the trained policy: one optimiser step over a rank's micro-batches, its metrics merged over ranks.

Every collective of training runs in here. Knows nothing of what an objective computes.
"""

from __future__ import annotations

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
from learners.sharding import shape_of

_BETAS = (0.9, 0.95)  # AdamW's


class Optimiser:
    """AdamW through DeepSpeed at `config.zero_stage`. `engine` is DeepSpeed's: a scorer that gathers its weights.
    `skipped_in_a_row`: how many of its last steps were skipped."""

    def __init__(
        self, deepspeed: Any, scorer: TokenScorer, config: LearnerConfig, device: torch.device, world_size: int
    ) -> None:
        """`deepspeed`: the module, from `import_deepspeed`."""
        self._deepspeed, self._config, self._device, self._world_size = deepspeed, config, device, world_size
        self._gradient_norm = 0.0
        self.skipped_in_a_row = 0
        self.engine = self._wrap(scorer)

    def step(
        self, work: Sequence[MicroBatch], objective: Callable[[MicroBatch], LossOutputs], learning_rate: float
    ) -> dict[str, float]:
        """One optimiser step over this rank's micro-batches.

        Returns the step's metrics over all ranks, `gradient_norm`, `learning_rate` and `skipped_steps`: 1 if the norm
        is not finite, otherwise 0. Such a step leaves weights and moments as they are, and its metrics that are not
        finite are left out. Raises LearnerError at the `config.max_skipped_steps`-th in a row.
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
        is_skipped = self._count_skipped(norm)
        metrics["gradient_norm"] = norm
        if is_skipped:  # one value that is not finite would spoil the means over steps
            metrics = {name: value for name, value in metrics.items() if math.isfinite(value)}
        return {
            **metrics,
            "learning_rate": float(self.engine.optimizer.param_groups[0]["lr"]),
            "skipped_steps": float(is_skipped),
        }

    def _count_skipped(self, norm: float) -> bool:
        """Whether a step with this norm of its gradient was skipped; all ranks find the same. Raises LearnerError if
        too many in a row were."""
        if math.isfinite(norm):
            self.skipped_in_a_row = 0
            return False
        self.skipped_in_a_row += 1
        if self.skipped_in_a_row >= self._config.max_skipped_steps:
            raise LearnerError(
                f"{self.skipped_in_a_row} optimiser steps in a row were skipped, because the norm of the gradient is "
                f"{norm}: lower the learning rate, go back to an earlier checkpoint, or raise "
                f"learner.max_skipped_steps (now {self._config.max_skipped_steps})"
            )
        return True

    def close(self) -> None:
        """Frees the optimiser's state."""
        self.engine.destroy()

    def _wrap(self, scorer: TokenScorer) -> Any:
        config = self._config
        trainable = [parameter for parameter in scorer.parameters() if parameter.requires_grad]
        # Decay is for matrices: it would only pull norms and biases off their place.
        groups = [
            {"params": [p for p in trainable if len(shape_of(p)) > 1], "weight_decay": config.weight_decay},
            {"params": [p for p in trainable if len(shape_of(p)) <= 1], "weight_decay": 0.0},
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
        size = sum(shape_of(parameter).numel() for parameter in trainable)
        asked = deepspeed_config(config, size, max(shape_of(parameter).numel() for parameter in scorer.parameters()))
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
        total /= self._config.sequence_parallel  # each rank of a group computed the same
        merged = zip(names, total.tolist(), maximum.tolist(), strict=True)
        return {name: highest if name.endswith("_max") else added for name, added, highest in merged}


@torch.no_grad()
def logprobs_of(scorer: Any, batch: Batch, temperature: float) -> Tensor:
    """Log-probabilities of the batch's targets, [tokens], without a gradient."""
    return scorer(batch=batch, temperature=temperature)[0]

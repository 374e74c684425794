"""One rank of the learner: DeepSpeed round a causal language model, with the steps of the three phases.

All ranks call the same methods with the same arguments, in the same order; each takes its own share of the samples.
Collectives are bounded by `config.timeout`. Never samples, never evaluates, and knows nothing of Ray.
"""

from __future__ import annotations

import contextlib
import gc
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, distributed, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils.logging import disable_progress_bar

from configs.schema import ContrastiveConfig, LearnerConfig
from learners import checkpoints
from learners.attention import has_flash, supports_packing, use_packed_attention
from learners.batching import Batch, Plan, Row, collate, plan_batches
from learners.deepspeed_config import deepspeed_config, import_deepspeed, join_process_group, require_nvme
from learners.disk_adam import DiskAdamW
from learners.frozen import FrozenPolicy, freeze, frozen_dtype
from learners.host_memory import trim
from learners.lora import FrozenAdapters, adapter_settings, adapter_weights, attach_lora, merged_weights
from learners.losses import LossInputs, LossOutputs, Objective, cross_entropy_loss, grpo_loss
from learners.policy import compile_layers, load_policy
from learners.records import Sample
from learners.scoring import TokenScorer, has_bfloat16

_ADAM_BETAS = (0.9, 0.95)


class LearnerError(Exception):
    """A step that must not go on. The message says what to change."""


@dataclass
class _Work:
    """A micro-batch of this rank, with what was computed for it before the first optimiser step."""

    make: Callable[[], Batch]
    old: Tensor | None = None
    reference: Tensor | None = None

    @cached_property
    def batch(self) -> Batch:
        """Made when it is first needed: a GPU computes with the one before meanwhile."""
        return self.make()


class LearnerEngine:
    """Trains one policy on one rank. `policy_version` is the caller's: the engine stores it with a checkpoint."""

    def __init__(
        self,
        config: LearnerConfig,
        policy: str | Path | tuple[PreTrainedModel, PreTrainedTokenizerBase],
        *,
        max_length: int,
        rank: int = 0,
        world_size: int = 1,
        master_address: str = "127.0.0.1",
        master_port: int = 0,
        seed: int = 0,
    ) -> None:
        """Loads the policy (a folder or an id, or a model that is loaded, with its tokenizer) and meets the other ranks
        at `master_address:master_port`. Weights are float32, frozen ones half as wide where that computes the same.

        `max_length`: tokens; longer samples are dropped. Raises PolicyError where the policy does not load.
        """
        self.device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
        self.config = config = replace(config, autocast=config.autocast and has_bfloat16(self.device.type))
        self.max_length, self.rank, self.world_size = max_length, rank, world_size
        self.policy_version = 0
        if self.device.type == "cpu" or config.offload_optimizer != "none":
            _use_threads(config)
        disable_progress_bar()
        self._deepspeed = import_deepspeed()
        require_nvme(config)
        join_process_group(rank, world_size, master_address, master_port, config.timeout)
        torch.manual_seed(seed)  # the same on all ranks: adapters start equal
        # Under adapters in whatever precision it was saved: from there each weight goes to the one it is held in.
        dtype = "auto" if config.lora.rank else torch.float32
        self.model, self.tokenizer = policy if isinstance(policy, tuple) else load_policy(policy, dtype)
        if config.lora.rank:
            freeze(self.model, autocast=config.autocast)
        self._packed = self._packs()
        if self._packed and self.device.type == "cuda":
            use_packed_attention(self.model)
        if self._compiles():
            compile_layers(self.model)
        if config.gradient_checkpointing:
            self.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        self._adapters = attach_lora(self.model, config.lora, config.autocast) if config.lora.rank > 0 else None
        torch.manual_seed(seed + rank)  # different from here on: dropout
        scorer = TokenScorer(self.model, autocast=config.autocast, cache_casts=config.zero_stage < 3).to(self.device)
        self._frozen_size = checkpoints.size_of_frozen(scorer)
        self._engine = self._wrap(scorer)
        self._reference: FrozenPolicy | FrozenAdapters | None = None
        self._gradient_norm = 0.0

    def train_cross_entropy(self, samples: Sequence[Sample], learning_rate: float) -> dict[str, float]:
        """One optimiser step of cross-entropy over all `samples`: the mean over their response tokens.

        Returns loss, gradient_norm, learning_rate, response_tokens, padded_tokens, dropped and seconds.
        """
        started = time.perf_counter()
        plan = self._plan(samples)
        work = self._work(plan)

        def objective(item: _Work) -> LossOutputs:
            logprobs, _ = self._engine(batch=item.batch, temperature=1.0)
            return cross_entropy_loss(LossInputs(logprobs, plan.response_tokens))

        metrics = self._optimise(work, objective, learning_rate) if plan.response_tokens else {}
        return {**metrics, **_counts([plan], started)}

    def train_grpo(
        self,
        samples: Sequence[Sample],
        learning_rate: float,
        config: ContrastiveConfig,
        temperature: float = 1.0,
    ) -> dict[str, float]:
        """`config.epochs` passes of `config.minibatches` clipped policy-gradient steps over `samples`.

        `temperature` is the one they were sampled at. Returns the metrics of `grpo_loss`, averaged over the optimiser
        steps, those of `train_cross_entropy`, and `logprob_seconds`, of old and reference log-probabilities. Raises
        LearnerError when `config.kl` asks for a reference policy and `set_reference` was not called.
        """
        started = time.perf_counter()
        # Every n-th sample, so that the responses to one prompt spread over the minibatches.
        plans = [self._plan(samples[start :: config.minibatches]) for start in range(config.minibatches)]
        minibatches = [(plan, self._work(plan)) for plan in plans if plan.response_tokens]
        several_steps = len(minibatches) * config.epochs > 1
        self._wait_for_device()
        prepared = time.perf_counter()
        everything = [item for _, work in minibatches for item in work]
        if config.kl > 0:
            with self._reference_scorer() as reference:
                for item in everything:
                    item.reference = self._logprobs(reference, item.batch, temperature)
        if several_steps:
            for item in everything:
                item.old = self._logprobs(self._engine, item.batch, temperature)
        self._wait_for_device()
        scored = {"logprob_seconds": time.perf_counter() - prepared}

        def step(plan: Plan, work: list[_Work]) -> dict[str, float]:
            return self._optimise(work, lambda item: self._policy_loss(item, plan, config, temperature), learning_rate)

        steps = [step(plan, work) for _ in range(config.epochs) for plan, work in minibatches]
        return {**_mean_of(steps), **scored, **_counts(plans, started)}

    def set_reference(self) -> None:
        """Freezes a copy of the current policy for the KL term, whole on every rank; with LoRA, of its adapters alone.
        All ranks must call it."""
        self._forget_reference()  # the one before makes room first
        self._reference = self._frozen(self.named_weights() if self._adapters is None else self.named_adapters())

    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Hugging Face names and whole float32 weights on the engine's device, LoRA merged, tied weights once.

        All ranks must call it and read it to the end: under ZeRO-3 it gathers the weights, a few layers at a time.
        """
        return merged_weights(self.model, self._gather)

    def named_adapters(self) -> Iterator[tuple[str, Tensor]]:
        """The adapters' factors, float32 and whole, by the names that peft saves them under. All ranks must call it and
        read it to the end."""
        return adapter_weights(self.model, self._gather)

    @property
    def adapter_settings(self) -> str:
        """What peft writes beside them, as JSON. Raises LearnerError where there are none."""
        if self._adapters is None:
            raise LearnerError("there are no adapters to push: learner.lora.rank is 0")
        return adapter_settings(self._adapters)

    def save(self, folder: str | Path) -> None:
        """Writes all that `load` needs to continue as if never stopped, but for weights that are frozen. All ranks must
        call it, on a shared folder."""
        reference = self._reference.weights() if self._reference is not None else None
        checkpoints.save(self._engine, Path(folder), self.rank, self.policy_version, reference, self._frozen_size)

    def load(self, folder: str | Path) -> None:
        """Continues from a folder of `save`, written by as many ranks. Raises FileNotFoundError without one, and
        LearnerError where it is of another policy."""
        try:
            self.policy_version, reference = checkpoints.load(self._engine, Path(folder), self.rank, self._frozen_size)
        except ValueError as error:
            raise LearnerError(str(error)) from error
        self._reference = self._frozen(reference.items()) if reference is not None else None

    def export(self, folder: str | Path) -> None:
        """Writes a Hugging Face folder (float32 weights, configuration, tokenizer) from rank 0. All ranks must call."""
        checkpoints.export(self.model, self.tokenizer, self.named_weights(), Path(folder), self.rank)
        distributed.barrier()

    def release_memory(self) -> None:
        """Gives memory back that torch keeps for later, so that other processes of the GPU can have it."""
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def close(self) -> None:
        """Frees the model and the optimiser. The process group lives until the process ends."""
        self._engine.destroy()
        self._forget_reference()

    def _forget_reference(self) -> None:
        self._reference = None
        gc.collect()  # compiled layers refer to themselves

    def _compiles(self) -> bool:
        """Whether layers are: on GPUs, unless ZeRO-3 gathers their weights by hooks that a compiler cannot see."""
        return self.config.compile and self.device.type == "cuda" and self.config.zero_stage < 3

    def _packs(self) -> bool:
        """Whether rows are packed. Raises LearnerError where they cannot be and the config says so."""
        wanted, on_gpu = self.config.attention, self.device.type == "cuda"
        possible = supports_packing(self.model.config)
        if on_gpu:
            possible = possible and self.config.autocast and has_flash(self.model.config, self.device)
        if wanted == "packed" and not possible:
            raise LearnerError(
                "learner.attention=packed needs a model of plain full attention, and on a GPU learner.autocast and "
                "heads that FlashAttention serves (compute capability 8.0, sizes of 8 to 256): set it to padded"
            )
        return possible and (wanted == "packed" or (wanted == "auto" and on_gpu))

    def _wrap(self, scorer: TokenScorer) -> Any:
        trainable = [parameter for parameter in scorer.parameters() if parameter.requires_grad]
        # Decay is for matrices: it would only pull norms and biases off their place.
        groups = [
            {"params": [p for p in trainable if p.dim() > 1], "weight_decay": self.config.weight_decay},
            {"params": [p for p in trainable if p.dim() <= 1], "weight_decay": 0.0},
        ]
        settings: dict[str, Any] = {"lr": 0.0, "betas": _ADAM_BETAS, "fused": True}
        groups = [group for group in groups if group["params"]]
        optimizer: torch.optim.AdamW
        if self.config.offload_optimizer == "nvme":
            optimizer = DiskAdamW(groups, self.config.nvme_path, **settings)
        else:
            optimizer = torch.optim.AdamW(groups, **settings)
        if self.config.zero_stage == 0:
            optimizer.register_step_pre_hook(lambda *_: self._clip(trainable))
        size = sum(parameter.numel() for parameter in trainable)
        said = deepspeed_config(self.config, size, max(parameter.numel() for parameter in scorer.parameters()))
        engine, *_ = self._deepspeed.initialize(
            model=scorer, optimizer=optimizer, config=said, dist_init_required=False
        )
        return engine

    def _clip(self, parameters: Sequence[nn.Parameter]) -> None:
        """Clips the reduced gradients at stage 0; above it DeepSpeed does, and reports the norm itself."""
        norm = nn.utils.clip_grad_norm_(parameters, self.config.gradient_clip or math.inf)
        self._gradient_norm = float(norm)
        if not math.isfinite(self._gradient_norm):
            for parameter in parameters:
                parameter.grad = None  # AdamW leaves it alone: the step is skipped, as DeepSpeed does at other stages

    def _wait_for_device(self) -> None:
        """Until what was launched is done, so that times are of what they are said to be."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def _plan(self, samples: Sequence[Sample]) -> Plan:
        return plan_batches(
            samples,
            micro_batch_tokens=self.config.micro_batch_tokens,
            max_length=self.max_length,
            world_size=self.world_size,
            share_prompts=self.config.share_prompts,
            packed=self._packed,
        )

    def _work(self, plan: Plan) -> list[_Work]:
        pad = self.tokenizer.pad_token_id
        pad_id = cast(int, self.tokenizer.eos_token_id if pad is None else pad)

        def batch_of(rows: Sequence[Row]) -> Batch:
            return collate(rows, pad_id, packed=plan.packed).to(self.device)

        return [_Work(partial(batch_of, rows)) for rows in plan.micro_batches[self.rank]]

    def _optimise(
        self, work: Sequence[_Work], objective: Callable[[_Work], LossOutputs], learning_rate: float
    ) -> dict[str, float]:
        """One optimiser step over this rank's micro-batches; returns the step's metrics, over all ranks."""
        for group in self._engine.optimizer.param_groups:
            group["lr"] = learning_rate
        self._engine.train()
        outputs = []
        for item in work:
            result = objective(item)
            # The loss is a share of the whole step's, to be summed; DeepSpeed averages over ranks.
            self._engine.backward(result.loss * self.world_size)
            outputs.append(result.metrics)
        self._engine.step()
        metrics = self._merge(outputs)
        if self.device.type == "cpu":
            trim()
        norm = self._gradient_norm if self.config.zero_stage == 0 else float(self._engine.get_global_grad_norm())
        return {
            **metrics,
            "gradient_norm": _finite(norm),
            "learning_rate": float(self._engine.optimizer.param_groups[0]["lr"]),
        }

    def _merge(self, outputs: Sequence[dict[str, Tensor]]) -> dict[str, float]:
        """Adds the micro-batches' shares, over all ranks too; metrics ending in `_max` take the maximum."""
        names = sorted(outputs[0])
        stacked = torch.stack([torch.stack([metrics[name].float() for name in names]) for metrics in outputs])
        total, maximum = stacked.sum(dim=0), stacked.amax(dim=0)
        if self.world_size > 1:
            distributed.all_reduce(total)
            distributed.all_reduce(maximum, op=distributed.ReduceOp.MAX)
        merged = zip(names, total.tolist(), maximum.tolist(), strict=True)
        return {name: highest if name.endswith("_max") else added for name, added, highest in merged}

    def _policy_loss(self, item: _Work, plan: Plan, config: ContrastiveConfig, temperature: float) -> LossOutputs:
        logprobs, entropy = self._engine(batch=item.batch, temperature=temperature, with_entropy=True)
        inputs = LossInputs(
            logprobs,
            plan.response_tokens,
            advantages=item.batch.advantages,
            old_logprobs=item.old,
            behaviour_logprobs=item.batch.behaviour_logprobs,
            reference_logprobs=item.reference,
            entropy=entropy,
            response_of=item.batch.response_of,
            responses=plan.responses,
        )
        objective = Objective(
            clip_low=config.clip_low,
            clip_high=config.clip_high,
            kl=config.kl,
            importance_cap=config.importance_cap,
            ratio=config.ratio,
            mean=config.loss_mean,
            horizon=self.max_length,
        )
        return grpo_loss(inputs, objective)

    @torch.no_grad()
    def _logprobs(self, scorer: Any, batch: Batch, temperature: float) -> Tensor:
        return scorer(batch=batch, temperature=temperature)[0]

    def _reference_scorer(self) -> contextlib.AbstractContextManager[Any]:
        if self._reference is None:
            raise LearnerError("contrastive_rl.kl > 0 needs a reference policy: call set_reference() before the phase")
        return self._reference.at_hand()

    def _frozen(self, weights: Iterable[tuple[str, Tensor]]) -> FrozenPolicy | FrozenAdapters:
        autocast, offload = self.config.autocast, self.config.offload_reference
        place = torch.device("cpu") if offload else self.device
        held = {name: weight.to(place, frozen_dtype(weight, autocast=autocast)) for name, weight in weights}
        if self._adapters is not None:
            return FrozenAdapters(self.model, held, self._engine, device=self.device, offload=offload)
        frozen = FrozenPolicy(self.model, held, device=self.device, autocast=autocast, offload=offload)
        if self._packed and self.device.type == "cuda":
            use_packed_attention(frozen.model)
        if self._compiles():
            compile_layers(frozen.model)
        return frozen

    def _gather(self, parameters: Sequence[Tensor]) -> contextlib.AbstractContextManager[Any]:
        if self.config.zero_stage < 3:
            return contextlib.nullcontext()
        return self._deepspeed.zero.GatheredParameters(parameters)


def _use_threads(config: LearnerConfig) -> None:
    """Ray allows a process of one CPU a single thread (OMP_NUM_THREADS), which would starve an optimiser on the host:
    without a number in the config the ranks share the host's cores."""
    if config.threads:
        torch.set_num_threads(config.threads)
    elif torch.cuda.is_available():
        torch.set_num_threads(max(len(os.sched_getaffinity(0)) // config.ranks, 1))


def _finite(norm: float) -> float:
    """The gradient norm; LearnerError where it is not finite (DeepSpeed skips such a step, so the policy is whole)."""
    if not math.isfinite(norm):
        raise LearnerError(f"the gradient norm is {norm}: lower the learning rate, or continue from a checkpoint")
    return norm


def _counts(plans: Sequence[Plan], started: float) -> dict[str, float]:
    return {
        "response_tokens": float(sum(plan.response_tokens for plan in plans)),
        "padded_tokens": float(sum(plan.padded_tokens for plan in plans)),
        "dropped": float(sum(plan.dropped for plan in plans)),
        "seconds": time.perf_counter() - started,
    }


def _mean_of(steps: Sequence[dict[str, float]]) -> dict[str, float]:
    """The mean of each metric over optimiser steps; of those ending in `_max`, the maximum."""
    if not steps:
        return {}
    columns = {name: [step[name] for step in steps] for name in steps[0]}
    return {name: max(v) if name.endswith("_max") else sum(v) / len(v) for name, v in columns.items()}

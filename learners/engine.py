"""One rank of the learner: DeepSpeed around a causal language model, with the training steps of the three phases.

All ranks call the same methods with the same arguments, in the same order; each takes its own share of the samples.
Collectives are bounded by `config.timeout`. Never samples, never evaluates, and knows nothing of Ray.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed
from transformers.utils.logging import disable_progress_bar

from configs.schema import ContrastiveConfig, LearnerConfig
from learners import checkpoints
from learners.batching import Plan, plan_batches
from learners.deepspeed_config import import_deepspeed, join_process_group, require_nvme
from learners.errors import LearnerError
from learners.lora import adapter_settings, adapter_weights, merged_weights
from learners.micro_batches import MicroBatch, micro_batches_of
from learners.objectives import cross_entropy_objective, policy_objective
from learners.optimiser import Optimiser, logprobs_of
from learners.records import Sample
from learners.reference import Reference
from learners.scoring import TokenScorer, has_bfloat16
from learners.sequence_parallel import SequenceGroup
from learners.sharding import Sharder, whole_already
from learners.trained_policy import Loaded, load_for_training


class LearnerEngine:
    """Trains one policy on one rank. `policy_version` is the caller's: the engine stores it with a checkpoint."""

    def __init__(
        self,
        config: LearnerConfig,
        policy: str | Path | Loaded,
        *,
        max_length: int,
        rank: int = 0,
        world_size: int = 1,
        ranks_on_host: int = 0,
        master_address: str = "127.0.0.1",
        master_port: int = 0,
        seed: int = 0,
    ) -> None:
        """Loads the policy (see `load_for_training`) and meets the other ranks at `master_address:master_port`.

        `max_length`: tokens; longer samples are dropped. `ranks_on_host`: how many ranks, this one included, share the
        cores of this host; 0 stands for all. Raises PolicyError if the policy does not load.
        """
        self.device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
        self.config = config = replace(config, autocast=config.autocast and has_bfloat16(self.device.type))
        self.max_length, self.rank, self.world_size = max_length, rank, world_size
        self.policy_version = 0
        if self.device.type == "cpu" or config.offload_optimizer != "none":
            _use_threads(config, ranks_on_host or world_size)
        disable_progress_bar()
        self._deepspeed = import_deepspeed()
        require_nvme(config)
        join_process_group(rank, world_size, master_address, master_port, config.timeout)
        torch.manual_seed(seed)  # the same on all ranks: adapters start equal
        sharder = Sharder(self._deepspeed, config) if config.zero_stage == 3 else None
        self._gather = sharder.gather if sharder is not None else whole_already
        self._policy = load_for_training(config, policy, self.device, sharder)
        self.model, self.tokenizer = self._policy.model, self._policy.tokenizer
        scorer = TokenScorer(self.model, autocast=config.autocast, cache_casts=config.zero_stage < 3).to(self.device)
        self._optimiser = self._make_optimiser(scorer)
        self._sequence_group = self._join_sequence_group()
        self._frozen_size = checkpoints.size_of_frozen(scorer, self._gather)
        self._reference = Reference(self._policy, self._optimiser.engine, config, self.device, sharder)

    def train_cross_entropy(self, samples: Sequence[Sample], learning_rate: float) -> dict[str, float]:
        """One optimiser step of cross-entropy over all `samples`: the mean over their response tokens.

        Returns loss, gradient_norm, learning_rate, skipped_steps, response_tokens, padded_tokens, dropped and seconds.
        Without loss and gradient_norm if the gradient was not finite (see `Optimiser.step`).
        """
        started = time.perf_counter()
        plan = self._plan(samples)
        work = self._micro_batches(plan)
        objective = cross_entropy_objective(self._optimiser.engine, plan)
        metrics = self._optimiser.step(work, objective, learning_rate) if plan.computed_tokens else {}
        return {**metrics, **_counts([plan], started)}

    def train_grpo(
        self,
        samples: Sequence[Sample],
        learning_rate: float,
        config: ContrastiveConfig,
        temperature: float = 1.0,
    ) -> dict[str, float]:
        """`config.epochs` passes of `config.minibatches` clipped policy-gradient steps over `samples`.

        `temperature` is the one at which they were sampled. Samples without a signal count in the loss's mean; they are
        computed only if `config.kl` is above 0, since nothing but the KL term depends on them. Returns the metrics of
        `grpo_loss`, averaged over the optimiser steps, those of `train_cross_entropy`, and `logprob_seconds`, the time
        for old and reference log-probabilities. Raises LearnerError if `config.kl` is above 0 and `set_reference` was
        not called.
        """
        started = time.perf_counter()
        # Every n-th sample, so that the responses to one prompt spread over the minibatches.
        parts = [samples[start :: config.minibatches] for start in range(config.minibatches)]
        plans = [self._plan(part, only_signal=config.kl == 0) for part in parts]
        minibatches = [(plan, self._micro_batches(plan)) for plan in plans if plan.computed_tokens]
        several_steps = len(minibatches) * config.epochs > 1
        self._wait_for_device()
        prepared = time.perf_counter()
        everything = [item for _, work in minibatches for item in work]
        if config.kl > 0:
            with self._reference_scorer() as reference:
                for item in everything:
                    item.reference = logprobs_of(reference, item.batch, temperature)
        if several_steps:
            for item in everything:
                item.old = logprobs_of(self._optimiser.engine, item.batch, temperature)
        self._wait_for_device()
        scored = {"logprob_seconds": time.perf_counter() - prepared}

        def step(plan: Plan, work: list[MicroBatch]) -> dict[str, float]:
            objective = policy_objective(
                self._optimiser.engine, plan, config, temperature=temperature, horizon=self.max_length
            )
            return self._optimiser.step(work, objective, learning_rate)

        steps = [step(plan, work) for _ in range(config.epochs) for plan, work in minibatches]
        return {**_mean_of(steps), **scored, **_counts(plans, started)}

    def set_reference(self) -> None:
        """Freezes a copy of the current policy for the KL term: whole on every rank, in shards under ZeRO-3, or with
        LoRA its adapters alone. All ranks must call it."""
        self._reference.set(self.named_weights() if self._policy.adapters is None else self.named_adapters())

    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Hugging Face names and whole float32 weights on the engine's device, LoRA merged, tied weights once.

        All ranks must call it and read it to the end: under ZeRO-3 it gathers the weights, a few layers at a time.
        """
        return merged_weights(self.model, self._gather)

    def named_adapters(self) -> Iterator[tuple[str, Tensor]]:
        """The adapters' factors, float32 and whole, by the names under which peft saves them. All ranks must call it
        and read it to the end."""
        return adapter_weights(self.model, self._gather)

    @property
    def adapter_settings(self) -> str:
        """The settings that peft writes beside adapters, as JSON. Raises LearnerError if there are no adapters."""
        if self._policy.adapters is None:
            raise LearnerError("there are no adapters to push: learner.lora.rank is 0")
        return adapter_settings(self._policy.adapters)

    def save(self, folder: str | Path) -> None:
        """Writes all that `load` needs to continue as if never stopped, except for frozen weights. All ranks must call
        it, on a shared folder."""
        checkpoints.save(
            self._optimiser.engine,
            Path(folder),
            self.rank,
            {"policy_version": self.policy_version, "skipped_in_a_row": self._optimiser.skipped_in_a_row},
            self._reference.weights(),
            self._frozen_size,
        )

    def load(self, folder: str | Path) -> None:
        """Continues from a folder that `save` wrote, with any number of ranks. Raises FileNotFoundError without one,
        and LearnerError if it belongs to another policy."""
        engine = self._optimiser.engine
        try:
            counts, reference = checkpoints.load(engine, Path(folder), self.rank, self.world_size, self._frozen_size)
        except ValueError as error:
            raise LearnerError(str(error)) from error
        self.policy_version = counts["policy_version"]
        self._optimiser.skipped_in_a_row = counts.get("skipped_in_a_row", 0)  # earlier versions did not keep it
        if reference is None:
            self._reference.forget()
        else:
            self._reference.set(reference)

    def export(self, folder: str | Path) -> None:
        """Writes a Hugging Face folder (float32 weights, configuration, tokenizer) from rank 0. All ranks must call."""
        checkpoints.export(self.model, self.tokenizer, self.named_weights(), Path(folder), self.rank)
        distributed.barrier()

    def release_memory(self) -> None:
        """Returns memory that torch keeps for later use, so that other processes on the GPU can have it."""
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def close(self) -> None:
        """Frees the model and the optimiser. The process group lives until the process ends."""
        self._optimiser.close()
        self._reference.forget()

    def _make_optimiser(self, scorer: TokenScorer) -> Optimiser:
        return Optimiser(self._deepspeed, scorer, self.config, self.device, self.world_size)

    def _join_sequence_group(self) -> SequenceGroup | None:
        size = self.config.sequence_parallel
        if size == 1:
            return None
        return SequenceGroup(self.model.config, size, self.rank, self.world_size, self.config.timeout)

    def _reference_scorer(self) -> contextlib.AbstractContextManager[Any]:
        return self._reference.at_hand()

    def _wait_for_device(self) -> None:
        """Waits until the device has done all that was launched, so that measured times belong to it."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def _plan(self, samples: Sequence[Sample], *, only_signal: bool = False) -> Plan:
        return plan_batches(
            samples,
            micro_batch_tokens=self.config.micro_batch_tokens * self.config.sequence_parallel,
            max_length=self.max_length,
            world_size=self.world_size // self.config.sequence_parallel,
            share_prompts=self.config.share_prompts,
            packed=self._policy.is_packed,
            only_signal=only_signal,
        )

    def _micro_batches(self, plan: Plan) -> list[MicroBatch]:
        group = self.rank // self.config.sequence_parallel
        return micro_batches_of(plan, group, self.tokenizer, self.device, self._sequence_group)


def _use_threads(config: LearnerConfig, ranks_on_host: int) -> None:
    """Ray allows a process of one CPU a single thread (OMP_NUM_THREADS), too few for an optimiser on the host. Without
    `config.threads` the ranks on a host share its cores."""
    if config.threads:
        torch.set_num_threads(config.threads)
    elif torch.cuda.is_available():
        torch.set_num_threads(max(len(os.sched_getaffinity(0)) // ranks_on_host, 1))


def _counts(plans: Sequence[Plan], started: float) -> dict[str, float]:
    return {
        "response_tokens": float(sum(plan.response_tokens for plan in plans)),
        "padded_tokens": float(sum(plan.padded_tokens for plan in plans)),
        "dropped": float(sum(plan.dropped for plan in plans)),
        "seconds": time.perf_counter() - started,
    }


def _mean_of(steps: Sequence[dict[str, float]]) -> dict[str, float]:
    """The mean of each metric over the optimiser steps that have it; of those ending in `_max`, the maximum; of
    `skipped_steps`, the sum."""
    columns: dict[str, list[float]] = {}
    for step in steps:
        for name, value in step.items():
            columns.setdefault(name, []).append(value)
    metrics = {name: max(v) if name.endswith("_max") else sum(v) / len(v) for name, v in columns.items()}
    return metrics | {name: sum(v) for name, v in columns.items() if name == "skipped_steps"}

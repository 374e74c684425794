"""One learner whose memory is measured, in a process of its own that `benchmarks/learner_memory.py` starts and reads.

Prints a JSON record a line. A subclass of the engine records the memory peaks of its stages; it must compute exactly
what the engine computes.
"""

from __future__ import annotations

import contextlib
import json
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, Qwen2Config
from transformers.initialization import no_init_weights

from benchmarks.learner_memory import GIB, STAGES, next_length
from benchmarks.random_model import SHAPES
from configs.load import load_config
from configs.schema import ContrastiveConfig, LearnerConfig
from learners.deepspeed_config import import_deepspeed
from learners.engine import LearnerEngine
from learners.memory import learner_memory, policy_shape
from learners.optimiser import Optimiser
from learners.policy import train_tokenizer
from learners.records import Sample
from learners.scoring import TokenScorer, device_bytes, has_bfloat16

# Messages of torch's CPU allocator when memory runs out, and of oneDNN, which gives no reason.
_OUT_OF_MEMORY = ("can't allocate memory", "could not create a primitive")
WITH_KL = ContrastiveConfig(kl=0.01)


class Memory:
    """Memory peaks of this process between marks, in bytes: torch's allocations on the GPU, or the resident set."""

    def __init__(self, gib: float) -> None:
        """`gib`: the memory that may be used; 0 for all."""
        self.on_gpu = torch.cuda.is_available()
        self.peaks: dict[str, int] = {}
        self.capacity: int | None = None
        if self.on_gpu:
            total = torch.cuda.get_device_properties(0).total_memory
            free = torch.cuda.mem_get_info(0)[0]
            self.capacity = int(min(gib * GIB or total, free))
            torch.cuda.set_per_process_memory_fraction(self.capacity / total)
        elif gib:
            limit = self._of_process("VmData") + int(gib * GIB)
            resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
        self._before = 0 if self.on_gpu else self._of_process("VmRSS")
        self._reset()

    def mark(self, stage: str) -> None:
        """Records the peak since the last mark as that of `stage`."""
        peak = torch.cuda.max_memory_allocated() if self.on_gpu else self._of_process("VmHWM") - self._before
        self.peaks[stage] = max(peak, self.peaks.get(stage, 0))
        self._reset()

    def whole(self) -> int:
        """Bytes in use on the device, or resident on the CPU, caches of allocators included."""
        if not self.on_gpu:
            return self._of_process("VmRSS")
        free, total = torch.cuda.mem_get_info(0)
        return total - free

    def _reset(self) -> None:
        if self.on_gpu:
            torch.cuda.reset_peak_memory_stats()
        else:
            Path("/proc/self/clear_refs").write_text("5")  # sets the peak to the present resident set

    @staticmethod
    def _of_process(name: str) -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


class WatchedEngine(LearnerEngine):
    """An engine that marks the ends of its stages."""

    def __init__(self, memory: Memory, *arguments: Any, **options: Any) -> None:
        self._memory = memory
        super().__init__(*arguments, **options)
        engine = self._optimiser.engine
        backward, step = engine.backward, engine.step

        def watched_backward(loss: Any) -> None:
            memory.mark("forward")
            backward(loss)
            memory.mark("forward and backward")

        def watched_step() -> None:
            step()
            memory.mark("step")

        engine.backward, engine.step = watched_backward, watched_step

    def _make_optimiser(self, scorer: TokenScorer) -> Optimiser:
        self._memory.mark("weights")
        optimiser = super()._make_optimiser(scorer)
        self._memory.mark("optimiser")
        return optimiser

    @contextlib.contextmanager
    def _reference_scorer(self) -> Iterator[Any]:
        self._memory.mark("between")
        with super()._reference_scorer() as scorer:
            yield scorer
        self._memory.mark("reference pass")


def random_policy(name: str, config: LearnerConfig) -> tuple[Any, Any]:
    """A model of that shape with random weights, made where they will be, and a tokenizer for its first tokens."""
    tokenizer = train_tokenizer(["text of a small program\n"] * 9, 300, 24, 1 << 20)
    shape = Qwen2Config(**SHAPES[name], max_position_embeddings=1 << 20, pad_token_id=tokenizer.pad_token_id)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    half = config.lora.rank and config.autocast and has_bfloat16(device)
    with torch.device(device), no_init_weights():
        model: Any = AutoModelForCausalLM.from_config(shape, dtype=torch.bfloat16 if half else torch.float32)
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.02)
            else:
                parameter.fill_(0.0 if parameter_name.endswith("bias") else 1.0)
    return model, tokenizer


def engine_for(asked: dict[str, Any], memory: Memory, max_length: int) -> WatchedEngine:
    overrides = ["name=memory", "rollout.max_tokens=1", f"policy.max_length={max_length}", *asked["overrides"]]
    if asked["mode"] == "longest":
        overrides.append("learner.gradient_checkpointing=true")
    config = load_config("local", overrides).learner
    policy = random_policy(asked["model"], config) if asked["model"] in SHAPES else asked["model"]
    return WatchedEngine(memory, config, policy, max_length=max_length)


def peak(asked: dict[str, Any], memory: Memory) -> dict[str, Any]:
    """Takes two GRPO steps with a KL term, the second with all optimiser states, and reads the weights once."""
    prompt, response = asked["prompt"], asked["response"]
    samples = [
        Sample(
            (5 + index // 4,) * prompt, tuple(3 + (index + place) % 200 for place in range(response)), 1.0 - index % 4
        )
        for index in range(asked["samples"])
    ]
    engine = engine_for(asked, memory, prompt + response)
    engine.set_reference()
    for _ in range(2):
        metrics = engine.train_grpo(samples, 1e-6, WITH_KL)
    memory.mark("between")
    for _ in engine.named_weights():
        pass
    memory.mark("gathering")
    batches = engine._plan(samples)
    tokens = min(int(batches.padded_tokens), engine.config.micro_batch_tokens)
    scored = max(sum(row.response_tokens for row in rows) for rows in batches.micro_batches[0])
    shape = policy_shape(engine.model.config)
    plan = learner_memory(
        shape,
        replace(engine.config, micro_batch_tokens=tokens),
        responses=scored,
        reference=True,
        device_bytes=device_bytes(engine.device),
    )
    states = plan.weights + plan.optimizer + plan.reference
    host = 0 if memory.on_gpu else plan.host
    planned = (
        plan.weights,
        plan.weights + plan.optimizer,
        states + plan.activations,
        plan.total,
        states + plan.gradients,
        states,
        states,
    )
    return {
        "measured": memory.peaks,
        "planned": {
            stage: size + (host if stage != "weights" else 0) for stage, size in zip(STAGES, planned, strict=True)
        },
        "parts": vars(plan),
        "parameters": shape.parameters,
        "tokens": tokens,
        "seconds": metrics["seconds"],
        "process": memory.whole(),
        "device": torch.cuda.get_device_name(0) if memory.on_gpu else "the CPU",
    }


def longest(asked: dict[str, Any], memory: Memory) -> Iterator[dict[str, Any]]:
    """Tries longer and longer sequences, until memory runs out or no length is left to try."""
    fitting, too_long, limit = list(asked["fitting"]), asked["too_long"], asked["limit"]
    length = min(asked["start"], limit) if not fitting else next_length(fitting, too_long, limit, memory.capacity)
    engine = engine_for(asked, memory, limit)
    while length is not None:
        record = {"length": length, "capacity": memory.capacity, "fits": None, "peak": 0, "seconds": 0.0}
        yield record  # the trial may end this process
        record = {**record, **train_once(engine, memory, length)}
        yield record
        if not record["fits"]:
            return
        fitting.append(record)
        length = next_length(fitting, too_long, limit, memory.capacity)


def train_once(engine: LearnerEngine, memory: Memory, length: int) -> dict[str, Any]:
    """Takes a step on one sample, half of it prompt. An engine's first step also makes the optimiser's states."""
    sample = Sample((5,) * (length // 2), tuple(3 + place % 200 for place in range(length - length // 2)))
    started = time.perf_counter()
    memory.peaks.clear()
    try:
        engine.train_cross_entropy([sample], 1e-6)
        fits = True
    except RuntimeError as error:
        if not isinstance(error, torch.OutOfMemoryError) and not any(words in str(error) for words in _OUT_OF_MEMORY):
            raise
        fits = False
        memory.mark("step")
    return {"fits": fits, "peak": max(memory.peaks.values()), "seconds": time.perf_counter() - started}


def main(asked: dict[str, Any]) -> None:
    import_deepspeed()  # so that the libraries' memory is not counted as the learner's
    memory = Memory(asked["memory"])
    records: Iterator[dict[str, Any]] | Sequence[dict[str, Any]]
    records = [peak(asked, memory)] if asked["mode"] == "peak" else longest(asked, memory)
    for record in records:
        print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))

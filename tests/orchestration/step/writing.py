"""A real writer of prompts on two bundled tasks, with a tokenizer of their texts and programs of known speed-ups."""

from collections.abc import Mapping
from typing import Any

from configs.schema import RunConfig
from evaluators.records import Candidate, Estimate, Outcome, Verdict
from evaluators.tasks.loader import load_variants
from learners.policy import train_tokenizer
from orchestration.setup.policy import corpus
from orchestration.step.prompts import PromptWriter
from prompts.buffer import ExemplarBuffer
from tests.orchestration.step.scripted import GELU, SOFTMAX

TASKS = [SOFTMAX, GELU]
SPEEDUPS = {"double": 0.71, "row_loop": 0.23, "in_place": 1.62, "log_softmax": 2.18, "fused": 2.94}


def digest(source: str, task_id: str = SOFTMAX.id) -> str:
    return Candidate.propose(task_id, source, "").digest


PROGRAMS = {variant.name: variant for variant in load_variants(SOFTMAX.id)}
IDEAS = {digest(PROGRAMS[name].source): PROGRAMS[name].design for name in SPEEDUPS}


def lesson(name: str, **changes: Any) -> Mapping[str, Any]:
    variant = PROGRAMS[name]
    fields = {"source": variant.source, "analysis": variant.analysis, "design": variant.design}
    return {"task_id": SOFTMAX.id, **fields, "speedup": SPEEDUPS[name], **changes}


def make_writer(config: RunConfig) -> PromptWriter:
    """Its buffer holds the programs of `SPEEDUPS`."""
    buffer = ExemplarBuffer(config.buffer, "cpu", 0)
    for name, speedup in SPEEDUPS.items():
        candidate = Candidate.propose(SOFTMAX.id, PROGRAMS[name].source, "test")
        speedups = {"eager": Estimate(speedup, speedup, speedup, 9)}
        buffer.add(candidate, Verdict(candidate.digest, SOFTMAX.id, "cpu", Outcome.OK, speedups=speedups), 0)
    tokenizer = train_tokenizer(list(corpus(TASKS, config)), 700, 24, config.policy.max_length)
    return PromptWriter(config, TASKS, tokenizer, buffer)


def run_config(**sft: Any) -> RunConfig:
    config = RunConfig(name="test")
    for name, value in sft.items():
        setattr(config.sft, name, value)
    return config

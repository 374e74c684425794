"""Chooses the tasks of a file in CUDA-L1's format that `configs/h200.yaml` uses besides the bundled ones, or with
`--held-out N` those that `configs/broad.yaml` holds out.

    python -m benchmarks.real_tasks data/cuda_l1_a100.jsonl
    python -m benchmarks.real_tasks data/cuda_l1_a100.jsonl --held-out 64

Tasks to hold out are drawn by their ids from those that pass the same rules, as many of each level as the level has
among them, with or without a published program, but none with the structure of a bundled task. A chosen task is short
to read and cheap to judge, and its published program is short enough to be written within `rollout.max_tokens`. Prints
the ids of the chosen tasks, and how many tasks fail each rule. Runs on any machine and computes nothing: tensors have
shapes alone. The file is not part of this project.
"""

from __future__ import annotations

import argparse
import textwrap
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import torch
from torch.utils.flop_counter import FlopCounterMode

from configs.schema import HeldOutConfig, SftConfig
from evaluators.audit.marks import marked_among, shipped_marks
from evaluators.audit.run import read_audits
from evaluators.generator.structure import structure_digest
from evaluators.records import Task
from evaluators.shared import nesting
from evaluators.tasks import TaskProgram, load_tasks
from orchestration.setup.tasks import draw_held_out
from orchestration.step.teachers import file_teachers
from prompts.render import PromptRenderer

AUDITS = Path(__file__).parent / "results" / "audit" / "kernelbench.parquet"
LEVELS = (1, 2)
MOST_PROMPT = 3000  # characters of the one-shot prompt: some 900 tokens
MOST_RESPONSE = 5000  # characters of the response with the published program: 1515 tokens at 3.3 characters each
MOST_FLOPS = 20e9  # of a call: half a millisecond at what an H200 does in float32
MOST_BYTES = 600e6  # of inputs, outputs and weights: 0.15 ms at an H200's bandwidth

TWINS = {
    "level1/23": "level1/softmax",
    "level1/44": "level1/avg_pool1d",
    "level1/93": "level1/masked_cumsum",
    "level2/22": "level2/linear_scale_residual_clamp_logsumexp_mish",
    "level2/30": "level2/matmul_group_norm_hardtanh",
}
"""Tasks that compute the same as a bundled task. If one of the two were held out, its figures would say nothing."""


def cost(task: Task) -> tuple[float, float]:
    """Floating-point operations of a call, and bytes of inputs, outputs and weights."""
    device = torch.device("meta")
    program = TaskProgram(task, device)
    inputs = program.inputs(0)
    model = program.model(0, program.init_inputs(0))
    with torch.no_grad(), device, FlopCounterMode(display=False) as flops:
        outputs = model(*inputs)
    tensors = [*nesting.flatten(inputs)[1], *nesting.flatten(outputs)[1], *model.parameters()]
    return flops.get_total_flops(), sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def failing(task: Task, responses: dict[str, str] | None, clean: set[str], marked: set[str]) -> str:
    """The first rule that a task breaks; empty if it breaks none. Without `responses` a task needs none."""
    if task.text_digest not in clean or task.id in marked:
        return "not audited, or marked"
    if len(PromptRenderer().one_shot(task.source, "H200")) > MOST_PROMPT:
        return "long prompt"
    if responses is not None and not 0 < len(responses.get(task.id, "")) <= MOST_RESPONSE:
        return "no short published program"
    if task.id in TWINS:
        return "twin of a bundled task"
    flops, size = cost(task)
    return "costly" if flops > MOST_FLOPS or size > MOST_BYTES else ""


def chosen(path: str) -> tuple[list[str], Counter[str]]:
    """The ids of the chosen tasks, and how many tasks fail each rule."""
    tasks = [task for task in load_tasks(path) if task.level in LEVELS]
    (teacher,) = file_teachers(SftConfig(teachers=[path]))
    proposed = {task.id: next(teacher.proposals(task, ""), None) for task in tasks}
    responses = {
        name: PromptRenderer().response(proposal.source, proposal.analysis, proposal.design)
        for name, proposal in proposed.items()
        if proposal
    }
    return _without_failing(tasks, responses)


def held_out(path: str, number: int) -> tuple[list[str], Counter[str]]:
    """The ids of so many tasks to hold out, in the file's order, and how many tasks fail each rule."""
    tasks = [task for task in load_tasks(path) if task.level in LEVELS]
    names, left_out = _without_failing(tasks, None)
    bundled = {structure_digest(task) for task in load_tasks("bundled")}
    known = {task.id for task in tasks if structure_digest(task) in bundled}
    drawn = draw_held_out(
        [task for task in tasks if task.id in names and task.id not in known],
        HeldOutConfig(share=number / len(set(names) - known)),
        seed=0,
    )
    left_out["structure of a bundled task"] = len(known & set(names))
    left_out["not drawn"] = len(names) - len(known & set(names)) - len(drawn)
    return drawn, left_out


def _without_failing(tasks: Sequence[Task], responses: dict[str, str] | None) -> tuple[list[str], Counter[str]]:
    clean = {audit.digest for audit in read_audits(AUDITS) if audit.is_clean}
    marked = set(marked_among(tasks, shipped_marks()))
    reasons = {task.id: failing(task, responses, clean, marked) for task in tasks}
    return [name for name, reason in reasons.items() if not reason], Counter(filter(None, reasons.values()))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", help="a file in CUDA-L1's JSONL format")
    parser.add_argument("--held-out", type=int, default=0, help="choose so many tasks to hold out instead")
    parsed: SimpleNamespace = parser.parse_args(arguments)  # type: ignore[assignment]
    names, left_out = held_out(parsed.path, parsed.held_out) if parsed.held_out else chosen(parsed.path)
    print(textwrap.fill(", ".join(names), 116, initial_indent="    ", subsequent_indent="    ") + ",")
    print(f"{len(names)} tasks; left out: {', '.join(f'{count} {reason}' for reason, count in left_out.items())}")


if __name__ == "__main__":
    main()

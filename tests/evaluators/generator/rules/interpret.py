"""Runs a sample of Triton programs on the CPU in Triton's interpreter, and prints the rule of each that is right.

Called by `test_values.py`, in a process of its own. Argument: a folder for the programs.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from evaluators.generator.rules import variants_of
from tests.evaluators.generator.drawing import some
from tests.evaluators.generator.rules.test_values import assert_right, load


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    for task in some(1):
        dtypes = {node.dtype for node in task.drawn.graph.nodes}
        rules = {variant.rule: variant for variant in variants_of(task.drawn) if "triton" in variant.rule}
        if "bfloat16" in dtypes:
            rules.pop("triton_product", None)  # the interpreter of Triton 3.9 multiplies their bits
        for rule, variant in rules.items():  # the last tiling of each
            assert_right(task, variant, load(variant.source, folder))
            print(rule)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

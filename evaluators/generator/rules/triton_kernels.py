"""Triton kernels for element-wise chains and row-wise functions, printed from the steps of a region."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from evaluators.generator.graph import Graph, Node
from evaluators.generator.rules.regions import Region
from evaluators.generator.rules.steps import (
    Operand,
    Step,
    Steps,
    needs_tanh,
    output_shape,
    steps_of,
    text_of_step,
    whole_operand,
)

IMPORTS = ("import triton", "import triton.language as tl")
TANH = "@triton.jit\ndef tanh(x):\n    return 2.0 * tl.sigmoid(2.0 * x) - 1.0"


@dataclass(frozen=True)
class Kernel:
    """A program's function for one region: the text of kernel and wrapper, the call, and whether it needs `tanh`."""

    text: str
    call: str
    needs_tanh: bool


def call_node(graph: Graph, region: Region, kernel_call: str) -> Node:
    """The node that stands for a region in the changed graph; its arguments are still those of the old one."""
    node = graph.nodes[region.output]
    attrs: Mapping[str, object] = {"text": kernel_call}
    return Node("call", region.inputs, attrs, node.shape, node.dtype, node.span, node.name)


def map_kernel(graph: Graph, region: Region, name: str, block: int, warps: int) -> Kernel:
    """A kernel in which each program computes `block` elements."""
    made = steps_of(graph, region)
    whole = whole_operand(made)
    strides = [(operand, *_index(operand, len(region.shape))) for operand in made.operands]
    scalars = dict.fromkeys(name for _, _, sizes in strides for name, _ in sizes)
    texts = dict(pair for _, _, sizes in strides for pair in sizes)
    pointers = [f"{operand.name}_ptr" for operand in made.operands]
    lines = [
        "@triton.jit",
        f"def {name}_kernel({', '.join([*pointers, 'out_ptr', 'count', *scalars])}, BLOCK: tl.constexpr):",
        "    places = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)",
        "    inside = places < count",
    ]
    for operand, index, _ in strides:
        if operand.block == (0, 0):
            lines.append(f"    {operand.name} = tl.load({operand.name}_ptr).to(tl.float32)")
        else:
            lines.append(f"    {operand.name} = tl.load({operand.name}_ptr + {index}, mask=inside).to(tl.float32)")
    lines += [f"    {step.target} = {text_of_step(step, 0)}" for step in made.steps]
    lines.append(f"    tl.store(out_ptr + places, {made.result}, mask=inside)")
    arguments = ", ".join(operand.name for operand in made.operands)
    lines += ["", "", f"def {name}({arguments}):"]
    lines.append(f"    out = torch.empty_like({whole.name})")
    passed = [operand.name for operand in made.operands]
    passed += ["out", "out.numel()", *(texts[each].format(x=whole.name) for each in scalars)]
    options = f"BLOCK={block}, num_warps={warps}"
    lines.append(f"    {name}_kernel[(triton.cdiv(out.numel(), {block}),)]({', '.join(passed)}, {options})")
    lines.append("    return out")
    return Kernel("\n".join(lines), _call(name, made), needs_tanh(made))


def _index(operand: Operand, rank: int) -> tuple[str, list[tuple[str, str]]]:
    """Where an operand's number for an element lies, and the sizes that this takes with the texts that give them."""
    if operand.block is None:
        raise ValueError(f"{operand.name} does not lie in a block of axes")
    first, last = operand.block
    if (first, last) == (0, rank) or first == last:
        return "places", []
    sizes: list[tuple[str, str]] = []
    text = "places"
    if last < rank:
        inner = f"inner{last}" if last < rank - 1 else "width"
        sizes.append((inner, f"{{x}}.shape[{last}:].numel()" if last < rank - 1 else "{x}.shape[-1]"))
        text = f"places // {inner}"
    if first > 0:
        extent = "width" if (first, last) == (rank - 1, rank) else f"extent{first}"
        given = "{x}.shape[-1]" if extent == "width" else f"{{x}}.shape[{first}:{last}].numel()"
        sizes.append((extent, given))
        text = f"{text} % {extent}" if text == "places" else f"({text}) % {extent}"
    return text, sizes


def row_kernel(graph: Graph, region: Region, name: str, rows: int, warps: int) -> Kernel:
    """A kernel in which each program holds whole rows: `rows` of them."""
    made = steps_of(graph, region)
    whole = whole_operand(made)
    pointers = [f"{operand.name}_ptr" for operand in made.operands]
    lines = [
        "@triton.jit",
        f"def {name}_kernel({', '.join([*pointers, 'out_ptr', 'rows', 'width'])}, "
        "ROWS: tl.constexpr, BLOCK: tl.constexpr):",
        "    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]",
        "    column = tl.arange(0, BLOCK)[None, :]",
        "    inside = (row < rows) & (column < width)",
    ]
    index = {"full": ("row * width + column", "inside"), "vector": ("column", "column < width")}
    for operand in made.operands:
        place, mask = index.get(operand.form, ("row", "row < rows"))
        loaded = f"tl.load({operand.name}_ptr + {place}, mask={mask}, other=0.0)"
        lines.append(f"    {operand.name} = {loaded}.to(tl.float32)")
    lines += [f"    {step.target} = {_row_text(step)}" for step in made.steps]
    is_full = made.forms[made.result]
    target, mask = ("row * width + column", "inside") if is_full else ("row", "row < rows")
    lines.append(f"    tl.store(out_ptr + {target}, {made.result}, mask={mask})")
    arguments = ", ".join(operand.name for operand in made.operands)
    lines += ["", "", f"def {name}({arguments}):", f"    width = {whole.name}.shape[-1]"]
    lines.append(f"    rows = {whole.name}.numel() // width")
    lines.append(f"    out = {_output(made, whole)}")
    passed = ", ".join([*(operand.name for operand in made.operands), "out", "rows", "width"])
    block = "triton.next_power_of_2(width)"
    grid = "(rows,)" if rows == 1 else f"(triton.cdiv(rows, {rows}),)"
    lines.append(f"    {name}_kernel[{grid}]({passed}, ROWS={rows}, BLOCK={block}, num_warps={warps})")
    lines.append("    return out")
    return Kernel("\n".join(lines), _call(name, made), needs_tanh(made))


def _row_text(step: Step) -> str:
    if not step.reduces:
        return text_of_step(step, 0)
    fill = {"sum": "0.0", "max": 'float("-inf")', "min": 'float("inf")'}[step.op]
    return f"tl.{step.op}(tl.where(inside, {step.args[0]}, {fill}), axis=1)[:, None]"


def _output(made: Steps, whole: Operand) -> str:
    """The text that makes the output's memory."""
    shape = output_shape(made)
    if shape == made.region.shape:
        return f"torch.empty_like({whole.name})"
    lead = f"*{whole.name}.shape[:-1]"
    sizes = f"({lead}, 1)" if len(shape) == len(made.region.shape) else f"{whole.name}.shape[:-1]"
    return f"torch.empty({sizes}, dtype={whole.name}.dtype, device={whole.name}.device)"


def _call(name: str, made: Steps) -> str:
    return f"{name}({', '.join(operand.text for operand in made.operands)})"

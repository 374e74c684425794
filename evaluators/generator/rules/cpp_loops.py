"""C++ loops for element-wise chains and row-wise functions on a CPU, printed from the steps of a region.

A row is read as few times as its reductions allow. Values that a later loop needs are kept in a buffer of one row.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from evaluators.generator.graph import Graph
from evaluators.generator.rules.regions import Region
from evaluators.generator.rules.steps import Operand, Step, Steps, output_shape, steps_of, text_of_step, whole_operand
from evaluators.generator.rules.triton_kernels import Kernel

IMPORTS = ("from torch.utils.cpp_extension import load_inline",)
_START = {"sum": "0.0f", "max": "-3.0e38f", "min": "3.0e38f"}
_INCLUDES = "\n".join(
    f"#include <{header}>" for header in ("torch/extension.h", "ATen/Parallel.h", "algorithm", "cmath", "vector")
)
_GRAIN = 16384  # elements of a thread's share


@dataclass
class _Loop:
    """A pass over a row: its steps, and the reductions that it gathers."""

    steps: list[Step] = field(default_factory=list)


def cpp_kernel(graph: Graph, region: Region, name: str, suffix: str) -> Kernel | None:
    """The C++ function and its compilation. None if an operand does not lie in rows or columns."""
    made = steps_of(graph, region)
    split = len(region.shape) - 1 if region.is_row else _split(made)
    if split is None or any(graph.nodes[index].dtype != "float32" for index in (*region.inputs, region.output)):
        return None
    forms = {operand.name: _form(operand, split, len(region.shape)) for operand in made.operands}
    if region.is_row:
        forms |= {operand.name: {"short": "row"}.get(operand.form, operand.form) for operand in made.operands}
    if not region.is_row:  # a number a row is no full value here
        _renew_forms(made, forms)
    lines = [f"torch::Tensor {name}({', '.join(f'torch::Tensor {operand.name}' for operand in made.operands)}) {{"]
    lines += [f"  {line}" for line in _head(made, split, whole_operand(made).name)]
    lines += [f"  const float* {operand.name}_data = {operand.name}.data_ptr<float>();" for operand in made.operands]
    lines.append("  float* out_data = out.data_ptr<float>();")
    grain = f"std::max<int64_t>(1, {_GRAIN} / width)"
    lines.append(f"  at::parallel_for(0, rows, {grain}, [&](int64_t begin, int64_t end) {{")
    loops, buffered = _loops(made, forms)
    lines += [f"    std::vector<float> kept_{value}(width);" for value in buffered]
    lines.append("    for (int64_t row = begin; row < end; ++row) {")
    lines += [f"      {line}" for line in _row(made, forms, loops, buffered)]
    lines += ["    }", "  });", "  return out;", "}"]
    body = "\n".join(lines)
    text = (
        f'source = """\n{_INCLUDES}\n\n{body}\n"""\nextension = load_inline(\n    name="{name}_{suffix}",\n'
        f'    cpp_sources=source,\n    functions=["{name}"],\n'
        '    extra_cflags=["-O3", "-march=native", "-ffast-math"],\n)'
    )
    return Kernel(text, f"extension.{name}({', '.join(operand.text for operand in made.operands)})", False)


def _split(made: Steps) -> int | None:
    """The axis at which a map's shape is cut into rows and columns, so that each operand has a number a row, a number
    a column, or all; 0 if nothing is broadcast. None if there is no such axis."""
    rank = len(made.region.shape)
    blocks = {operand.block for operand in made.operands if operand.block not in ((0, rank), (0, 0), None)}
    if not blocks:
        return 0
    for split in range(rank - 1, 0, -1):
        if all(block is not None and (block == (split, rank) or block[1] <= split) for block in blocks):
            return split
    return None


def _form(operand: Operand, split: int, rank: int) -> str:
    if operand.block in ((0, rank), None):
        return "full"
    if operand.block == (0, 0):
        return "one"
    return "vector" if operand.block == (split, rank) else "row"


def _renew_forms(made: Steps, forms: dict[str, str]) -> None:
    for name, form in forms.items():
        made.forms[name] = form in ("full", "vector")
    for number, step in enumerate(made.steps):
        is_full = any(made.forms[arg] for arg in step.args)
        made.forms[step.target] = is_full
        made.steps[number] = Step(step.target, step.op, step.args, step.attrs, is_full)


def _head(made: Steps, split: int, whole: str) -> list[str]:
    """Makes the operands plain in memory, and counts rows and columns."""
    lines = []
    if split == 0 and not made.region.is_row:
        lines = [f"const int64_t total = {whole}.numel(), width = std::min<int64_t>(total, 4096);"]
        lines.append("const int64_t rows = (total + width - 1) / width;")
    elif split == len(made.region.shape) - 1:
        lines.append(f"const int64_t width = {whole}.size(-1), rows = {whole}.numel() / width;")
    else:
        inner = " * ".join(f"{whole}.size({axis})" for axis in range(split, len(made.region.shape)))
        lines.append(f"const int64_t width = {inner}, rows = {whole}.numel() / width;")
    shape = output_shape(made)
    if shape == made.region.shape:
        return [*lines, f"auto out = torch::empty_like({whole});"]
    lines.append(f"auto sizes = {whole}.sizes().vec();")
    lines.append("sizes.back() = 1;" if len(shape) == len(made.region.shape) else "sizes.pop_back();")
    return [*lines, f"auto out = torch::empty(sizes, {whole}.options());"]


def _loops(made: Steps, forms: dict[str, str]) -> tuple[dict[int, _Loop], list[str]]:
    """Sorts the steps into passes over a row, and names the values that a later pass reads."""
    level: dict[str, int] = {operand.name: 0 for operand in made.operands}
    producer: dict[str, Step] = {}
    loops: dict[int, _Loop] = {}
    for step in made.steps:
        own = max(level[arg] for arg in step.args)
        level[step.target] = own + 1 if step.reduces else own
        producer[step.target] = step
        loops.setdefault(own, _Loop()).steps.append(step)
    buffered = []
    for step in made.steps:
        own = level[step.target] - 1 if step.reduces else level[step.target]
        for arg in step.args:
            if step.reduces or step.is_full:
                made_by = producer.get(arg)
                if made_by and made_by.is_full and not made_by.reduces and level[arg] < own and arg not in buffered:
                    buffered.append(arg)
    return dict(sorted(loops.items())), buffered


def _row(made: Steps, forms: dict[str, str], loops: dict[int, _Loop], buffered: list[str]) -> list[str]:
    """The statements for one row: passes, and between them the numbers of the row."""
    lines = []
    is_flat = not made.region.is_row and all(form in ("full", "one") for form in forms.values())
    if is_flat:
        lines.append("const int64_t columns = std::min(width, total - row * width);")
    columns = "columns" if is_flat else "width"
    for name, form in forms.items():
        if form == "row":
            block = next(operand.block for operand in made.operands if operand.name == name)
            lines.append(f"const float {name} = {name}_data[{_row_place(made, block)}];")
        elif form == "one":
            lines.append(f"const float {name} = {name}_data[0];")
    last_full = max(
        (number for number, loop in loops.items() if made.result in {s.target for s in loop.steps}), default=0
    )
    for number, loop in loops.items():
        full = [step for step in loop.steps if step.is_full and not step.reduces]
        gathered = [step for step in loop.steps if step.reduces]
        plain = [step for step in loop.steps if not step.is_full and not step.reduces]
        lines += [f"const float {step.target} = {text_of_step(step, 1)};" for step in plain]
        if not full and not gathered:
            continue
        lines += [f"float {step.target} = {_START[step.op]};" for step in gathered]
        lines.append(f"for (int64_t j = 0; j < {columns}; ++j) {{")
        own = {step.target for step in full}
        read = dict.fromkeys(arg for step in (*full, *gathered) for arg in step.args)
        for name in read:
            if name in forms and forms[name] in ("full", "vector"):
                place = "row * width + j" if forms[name] == "full" else "j"
                lines.append(f"  const float {name} = {name}_data[{place}];")
            elif name in buffered and name not in own:
                lines.append(f"  const float {name} = kept_{name}[j];")
        for step in full:
            lines.append(f"  const float {step.target} = {text_of_step(step, 1)};")
            if step.target in buffered:
                lines.append(f"  kept_{step.target}[j] = {step.target};")
        for step in gathered:
            term = step.args[0]
            add = {"sum": f"{step.target} += {term};"}.get(
                step.op,
                f"{step.target} = {step.target} {'<' if step.op == 'max' else '>'} {term} ? {term} : {step.target};",
            )
            lines.append(f"  {add}")
        if made.forms[made.result] and number == last_full:
            lines.append(f"  out_data[row * width + j] = {made.result};")
        lines.append("}")
    if not made.forms[made.result]:
        lines.append(f"out_data[row] = {made.result};")
    return lines


def _row_place(made: Steps, block: tuple[int, int] | None) -> str:
    """Where a row's own number lies, for a value that varies along a block of the leading axes."""
    whole = whole_operand(made).name
    if made.region.is_row or block is None:
        return "row"
    split = _split(made) or 0
    first, last = block
    text = "row"
    if last < split:
        inner = " * ".join(f"{whole}.size({axis})" for axis in range(last, split))
        text = f"row / ({inner})"
    if first > 0:
        extent = " * ".join(f"{whole}.size({axis})" for axis in range(first, last))
        text = f"({text}) % ({extent})" if text != "row" else f"row % ({extent})"
    return text

"""Triton kernels for matrix products with the element-wise chain that follows as their epilogue."""

from __future__ import annotations

from dataclasses import dataclass, replace

from evaluators.generator.graph import Editor, Graph, Node
from evaluators.generator.rules.regions import Region, form_of, is_mappable, layout_of
from evaluators.generator.rules.steps import Operand, Steps, needs_tanh, steps_of, text_of_step
from evaluators.generator.rules.triton_kernels import IMPORTS, TANH


@dataclass(frozen=True)
class Tiling:
    """The block of the output that a program computes, the depth of a step, and how products are rounded: `ieee`, or
    `tf32x3`, which takes three tensor-core products for one of single precision."""

    rows: int
    columns: int
    depth: int
    precision: str
    warps: int = 4


TILINGS = (
    Tiling(64, 64, 32, "tf32x3"),
    Tiling(128, 64, 32, "tf32x3"),
    Tiling(128, 128, 32, "tf32x3", 8),
    Tiling(64, 64, 32, "ieee"),
)


def product_with_epilogue(graph: Graph, tiling: Tiling) -> tuple[Graph, list[int]] | None:
    """The graph with its first product that an element-wise chain follows as one kernel, and the nodes of both. None
    without such a product."""
    users, alive = graph.users(), graph.alive()
    for product in sorted(alive):
        node = graph.nodes[product]
        if node.op not in ("linear", "matmul") or not _fits(graph, node):
            continue
        chain = _epilogue(graph, product, users, alive)
        if chain:
            return _replaced(graph, product, chain, tiling), [product, *chain]
    return None


def _fits(graph: Graph, node: Node) -> bool:
    shapes = [graph.nodes[arg].shape for arg in node.args]
    if node.op == "linear":
        return layout_of(graph, node.args[0]) == ""
    return all(len(shape) == 2 for shape in shapes)


def _epilogue(graph: Graph, product: int, users: list[list[int]], alive: set[int]) -> list[int]:
    """The element-wise operators that read the product, or values made of it alone and of operands from before it."""
    shape, found = graph.nodes[product].shape, [product]
    for index in range(product + 1, len(graph.nodes)):
        node = graph.nodes[index]
        if index not in alive or not is_mappable(node) or node.shape != shape:
            continue
        outside = [arg for arg in node.args if arg not in found]
        readable = all(form_of(graph.nodes[arg].shape, shape) in ("full", "vector", "row") for arg in outside)
        simple = all(graph.nodes[arg].is_leaf or arg < product for arg in outside)
        plain = all(layout_of(graph, arg) == "" for arg in outside)
        if readable and simple and plain and len(outside) < len(node.args):
            found.append(index)
    while len(found) > 1:  # every value but the last is read inside alone
        inner = [index for index in found[:-1] if not all(user in found for user in users[index] if user in alive)]
        if not inner and graph.output not in found[:-1]:
            return found[1:]
        found = found[:-1]
    return []


def _replaced(graph: Graph, product: int, chain: list[int], tiling: Tiling) -> Graph:
    node, last = graph.nodes[product], chain[-1]
    inputs = [arg for index in chain for arg in graph.nodes[index].args if arg not in chain and arg != product]
    region = Region(tuple(chain), (product, *dict.fromkeys(inputs)), last, node.shape, False)
    made = steps_of(graph, region)
    text, call = _kernel(node, made, tiling)
    editor = Editor(graph)
    for index, old in enumerate(graph.nodes):
        if index == last:
            arguments = [*node.args, *region.inputs[1:]]
            new = Node("call", tuple(editor.place[arg] for arg in arguments), {"text": call}, old.shape, old.dtype)
            editor.put(index, replace(new, name=old.name))
        else:
            editor.keep(index)
    return editor.done(prelude=f"{TANH}\n\n\n{text}" if needs_tanh(made) else text, imports=IMPORTS)


def _kernel(node: Node, made: Steps, tiling: Tiling) -> tuple[str, str]:
    """The text of kernel and wrapper, and the call of the wrapper."""
    product, others = made.operands[0], made.operands[1:]
    bias = node.op == "linear" and bool(node.attrs["bias"])
    names = ["a", "b", *(["bias"] if bias else []), *(_safe(operand.name) for operand in others)]
    body = _body(made, product, others, bias)
    pointers = ", ".join(f"{name}_ptr" for name in names)
    kernel = f"""@triton.jit
def product_kernel({pointers}, out_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
                   ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    depth = tl.arange(0, DEPTH)
    a_places = a_ptr + row[:, None].to(tl.int64) * stride_am + depth[None, :] * stride_ak
    b_places = b_ptr + depth[:, None].to(tl.int64) * stride_bk + column[None, :] * stride_bn
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for start in range(0, K, DEPTH):
        a = tl.load(a_places, mask=(row[:, None] < M) & (start + depth[None, :] < K), other=0.0)
        b = tl.load(b_places, mask=(start + depth[:, None] < K) & (column[None, :] < N), other=0.0)
        total = tl.dot(a, b, total, input_precision="{tiling.precision}")
        a_places += DEPTH * stride_ak
        b_places += DEPTH * stride_bk
    inside = (row[:, None] < M) & (column[None, :] < N)
    places = row[:, None].to(tl.int64) * N + column[None, :]
{body}
    tl.store(out_ptr + places, {made.result}, mask=inside)"""
    wrapper = _wrapper(node, names, bias, tiling)
    weight = [f"self.{node.module}.weight"] if node.op == "linear" else ["{1}"]
    passed = ["{0}", *weight, *([f"self.{node.module}.bias"] if bias else [])]
    shift = len(node.args) - 1  # the product's own arguments stand before the others
    for operand in others:
        number = operand.text.strip("{}")
        passed.append(f"{{{int(number) + shift}}}" if number.isdigit() else operand.text)
    return f"{kernel}\n\n\n{wrapper}", f"fused_product({', '.join(passed)})"


_TAKEN = frozenset(("a", "b", "bias", "row", "column", "depth", "total", "places", "M", "N", "K"))


def _safe(name: str) -> str:
    return f"{name}_in" if name in _TAKEN else name


def _body(made: Steps, product: Operand, others: list[Operand], bias: bool) -> str:
    lines = [f"    {product.name} = total"]
    if bias:
        lines.append("    bias = tl.load(bias_ptr + column, mask=column < N, other=0.0).to(tl.float32)")
        lines[0] = f"    {product.name} = total + bias[None, :]"
        lines.reverse()
    places = {"full": ("places", "inside"), "vector": ("column[None, :]", "column[None, :] < N")}
    for operand in others:
        place, mask = places.get(operand.form, ("row[:, None]", "row[:, None] < M"))
        load = f"tl.load({_safe(operand.name)}_ptr + {place}, mask={mask}, other=0.0).to(tl.float32)"
        lines.append(f"    {operand.name} = {load}")
    lines += [f"    {step.target} = {text_of_step(step, 0)}" for step in made.steps]
    return "\n".join(lines)


def _wrapper(node: Node, names: list[str], bias: bool, tiling: Tiling) -> str:
    is_linear = node.op == "linear"
    lines = [f"def fused_product({', '.join(names)}):"]
    if is_linear:
        lines.append("    K, N = a.shape[-1], b.shape[0]")
        lines.append("    M = a.numel() // K")
        lines.append("    out = torch.empty((*a.shape[:-1], N), dtype=a.dtype, device=a.device)")
        strides = "K, 1, b.stride(1), b.stride(0)"
    else:
        lines.append("    (M, K), N = a.shape, b.shape[1]")
        lines.append("    out = torch.empty((M, N), dtype=a.dtype, device=a.device)")
        strides = "a.stride(0), a.stride(1), b.stride(0), b.stride(1)"
    lines.append(f"    grid = (triton.cdiv(M, {tiling.rows}), triton.cdiv(N, {tiling.columns}))")
    lines.append("    product_kernel[grid](")
    lines.append(f"        {', '.join(names)}, out, M, N, K, {strides},")
    lines.append(
        f"        ROWS={tiling.rows}, COLUMNS={tiling.columns}, DEPTH={tiling.depth}, num_warps={tiling.warps},"
    )
    lines += ["    )", "    return out"]
    return "\n".join(lines)

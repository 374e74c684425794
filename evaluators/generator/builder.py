"""Builds graphs with shape inference: every method checks its operands' shapes and gives the result's."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from evaluators.generator.elementwise import ACTIVATIONS, CONSTANTS, ELEMENTWISE
from evaluators.generator.graph import ANY, BOUNDED, POSITIVE, Graph, Node, Shape, Size, broadcast, plain


@dataclass(frozen=True)
class Drawn:
    """A drawn task before it has sizes: its graph, the roles of its size constants (see `evaluators.generator.sizes`),
    the constant that is scaled until a call takes long enough, and where it comes from."""

    graph: Graph
    roles: dict[str, str]
    scaled: str
    level: int
    family: str
    name: str
    tags: tuple[str, ...] = ()


class Builder:
    """A graph under construction. Values are indices of nodes."""

    def __init__(self, rng: random.Random, dtype: str = "float32") -> None:
        self.rng, self.dtype = rng, dtype
        self.nodes: list[Node] = []
        self.roles: dict[str, str] = {}
        self.init_sizes: list[str] = []

    def size(self, name: str, role: str, init: bool = False) -> Size:
        """Declares a size constant. `init`: the constructor takes it."""
        self.roles[name] = role
        if init and name not in self.init_sizes:
            self.init_sizes.append(name)
        return name

    def shape(self, value: int) -> Shape:
        return self.nodes[value].shape

    def add(self, op: str, args: Sequence[int], shape: Sequence[Size], **more: Any) -> int:
        """Appends a node. `more`: fields of Node; anything else is an attribute."""
        fields = {key: more.pop(key) for key in ("dtype", "span", "name", "module", "init") if key in more}
        fields.setdefault("dtype", self.dtype)
        self.nodes.append(Node(op, tuple(args), dict(more), tuple(shape), **fields))
        return len(self.nodes) - 1

    def input(self, name: str, *shape: Size, draw: str = "randn", layout: str = "", dtype: str = "") -> int:
        """`draw`: `randn`, `rand` or `randint:BOUND`. `layout`: `transposed` or `channels_last` in memory."""
        span = POSITIVE if draw == "rand" else ANY
        kind = dtype or ("int64" if draw.startswith("randint") else self.dtype)
        return self.add("input", (), shape, name=name, draw=draw, layout=layout, span=span, dtype=kind)

    def parameter(self, name: str, *shape: Size, around: str = "randn") -> int:
        """A weight of the model's own, of standard normal values or `ones`-like ones (`around="one"`)."""
        sizes = ", ".join(map(plain, shape))
        kind = "" if self.dtype == "float32" else f", dtype=torch.{self.dtype}"
        drawn = f"torch.randn({sizes}{kind})"
        init = f"nn.Parameter({drawn})" if around == "randn" else f"nn.Parameter(1.0 + 0.1 * {drawn})"
        return self.add("parameter", (), shape, module=self.free_module(name), init=init)

    def free_module(self, name: str) -> str:
        taken = {node.module for node in self.nodes}
        number, free = 2, name
        while free in taken:
            free, number = f"{name}{number}", number + 1
        return free

    def module(
        self, op: str, attribute: str, init: str, args: Sequence[int], shape: Sequence[Size], **more: Any
    ) -> int:
        if self.dtype != "float32":
            init = f"{init[:-1]}, dtype=torch.{self.dtype})"
        return self.add(op, args, shape, module=self.free_module(attribute), init=f"nn.{init}", **more)

    # element-wise

    def unary(self, op: str, x: int, name: str = "", **constants: float) -> int:
        """Raises ValueError if the values' range does not fit the operator."""
        rule, node = ELEMENTWISE[op], self.nodes[x]
        if rule.needs not in (ANY, node.span) and not (rule.needs == BOUNDED and node.attrs.get("bounded")):
            raise ValueError(f"{op} needs {rule.needs} values, these are {node.span}")
        drawn = {key: constants.get(key, self.rng.choice(values)) for key, values in CONSTANTS.get(op, {}).items()}
        span = node.span if rule.span == "same" else rule.span
        if op == "add_scalar" and node.span == POSITIVE:
            span = POSITIVE
        bounded = op in ("sigmoid", "neg_exp", "reciprocal", "rdiv_scalar") or span == BOUNDED
        return self.add(op, (x,), node.shape, span=span, name=name, dtype=node.dtype, **drawn, bounded=bounded)

    def positive(self, op: str, x: int) -> int:
        """`abs` or `square`, plus a constant: above zero."""
        raised = self.add(op, (x,), self.shape(x))
        return self.add("add_scalar", (raised,), self.shape(x), value=self.rng.choice((0.5, 1.0)), span=POSITIVE)

    def activation(self, x: int, among: Sequence[str] = ACTIVATIONS, name: str = "") -> int:
        return self.unary(self.rng.choice(list(among)), x, name)

    def binary(self, op: str, x: int, y: int, name: str = "") -> int:
        if ELEMENTWISE[op].needs == POSITIVE and self.nodes[y].span != POSITIVE:
            raise ValueError(f"{op} needs a positive second operand")
        spans = {self.nodes[x].span, self.nodes[y].span}
        span = spans.pop() if len(spans) == 1 and op in ("mul", "maximum", "minimum") else ANY
        return self.add(op, (x, y), broadcast(self.shape(x), self.shape(y)), span=span, name=name)

    # along axes

    def reduce(self, op: str, x: int, dim: int | tuple[int, ...], keepdim: bool = True, name: str = "") -> int:
        shape = list(self.shape(x))
        dims = sorted((d % len(shape) for d in ((dim,) if isinstance(dim, int) else dim)), reverse=True)
        for axis in dims:
            if keepdim:
                shape[axis] = "1"
            else:
                del shape[axis]
        span = POSITIVE if op in ("norm", "norm1", "std", "var") else ANY
        return self.add(op, (x,), shape, dim=dim, keepdim=keepdim, name=name, span=span)

    def along(self, op: str, x: int, dim: int = -1, name: str = "", **more: Any) -> int:
        """An operator along an axis that keeps the shape."""
        span = POSITIVE if op in ("softmax", "softmin") else ANY
        return self.add(op, (x,), self.shape(x), dim=dim, name=name, span=span, bounded=span == POSITIVE, **more)

    def layer_norm(self, x: int, name: str = "norm") -> int:
        return self.module("layer_norm", name, f"LayerNorm({plain(self.shape(x)[-1])})", (x,), self.shape(x), dim=-1)

    def group_norm(self, x: int, groups: int, name: str = "norm") -> int:
        """The channels' number must be a multiple of `groups` at every profile."""
        shape = self.shape(x)
        return self.module("group_norm", name, f"GroupNorm({groups}, {plain(shape[1])})", (x,), shape, groups=groups)

    def rms_norm(self, x: int, scaled: bool = True) -> int:
        """Written out: square, mean, reciprocal root, product."""
        squares = self.unary("square", x, "squares")
        mean = self.reduce("mean", squares, -1)
        raised = self.add("add_scalar", (mean,), self.shape(mean), value=1e-05, span=POSITIVE)
        factor = self.unary("rsqrt", raised, "factor")
        y = self.binary("mul", x, factor)
        return self.binary("mul", y, self.parameter("scale", self.shape(x)[-1], around="one")) if scaled else y

    # products

    def linear(self, x: int, out: Size, name: str = "linear", bias: bool = True, var: str = "") -> int:
        shape = self.shape(x)
        suffix = "" if bias else ", bias=False"
        text = f"Linear({plain(shape[-1])}, {plain(out)}{suffix})"
        return self.module("linear", name, text, (x,), (*shape[:-1], out), name=var, bias=bias)

    def matmul(self, x: int, y: int, name: str = "") -> int:
        """Of tensors with equal leading sizes, or a second one of two axes. Raises ValueError if sizes do not fit."""
        first, second = self.shape(x), self.shape(y)
        if first[-1] != second[-2] or (len(second) > 2 and first[:-2] != second[:-2]):
            raise ValueError(f"shapes {first} and {second} do not multiply")
        return self.add("matmul", (x, y), (*first[:-1], second[-1]), name=name)

    def transpose(self, x: int, first: int = -2, second: int = -1, name: str = "") -> int:
        shape = list(self.shape(x))
        shape[first], shape[second] = shape[second], shape[first]
        return self.add("transpose", (x,), shape, first=first, second=second, name=name)

    def conv(self, x: int, out: Size, kernel: int, rank: int, *, stride: int = 1, groups: Size = "1", padding: int = -1,
             bias: bool = True, name: str = "conv") -> int:  # fmt: skip
        """A convolution of 1 to 3 axes; `padding=-1` keeps the extent (odd kernels)."""
        shape = self.shape(x)
        pad = kernel // 2 if padding < 0 else padding
        extents = []
        for extent in shape[2:]:
            same = stride == 1 and 2 * pad == kernel - 1
            extents.append(extent if same else f"(({extent} + {2 * pad - kernel}) // {stride} + 1)")
        options = f", stride={stride}" * (stride > 1) + f", padding={pad}" * (pad > 0)
        options += f", groups={groups}" * (groups != "1") + ", bias=False" * (not bias)
        text = f"Conv{rank}d({shape[1]}, {out}, kernel_size={kernel}{options})"
        return self.module(f"conv{rank}d", name, text, (x,), (shape[0], out, *extents), kernel=kernel, groups=groups)

    def pool(self, op: str, x: int, kernel: int) -> int:
        shape = self.shape(x)
        return self.add(op, (x,), (*shape[:2], *(f"({extent} // {kernel})" for extent in shape[2:])), kernel=kernel)

    def view(self, op: str, x: int, shape: Sequence[Size], name: str = "", **more: Any) -> int:
        return self.add(op, (x,), shape, name=name, dtype=self.nodes[x].dtype, span=self.nodes[x].span, **more)

    def done(self, output: int, level: int, family: str, name: str, scaled: str, *tags: str) -> Drawn:
        """The drawn task, without statements that nothing reads."""
        graph = Graph(tuple(self.nodes), output, tuple(self.init_sizes)).pruned()
        used = graph.alive()
        unread = [node for index, node in enumerate(graph.nodes) if index not in used]
        if unread:
            raise ValueError(f"{family}: nothing reads {unread[0]}")
        texts = " ".join(f"{node.init} {[*node.attrs.values()]}" for node in graph.nodes if node.op != "input")
        own = " ".join(node.init for node in graph.nodes)
        named = [size for size in self.roles if size in graph.init_sizes or re.search(rf"\b{size}\b", own)]
        taken = tuple(size for size in named if re.search(rf"\b{size}\b", texts))
        return Drawn(replace(graph, init_sizes=taken), self.roles, scaled, level, family, name, tags)

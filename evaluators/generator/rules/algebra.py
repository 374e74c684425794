"""Makes the new nodes of algebraic rewrites: fused calls of torch, merged scalings, smaller products."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from evaluators.generator.graph import Graph
from evaluators.generator.rules.patterns import Bound
from evaluators.generator.rules.regions import layout_of


def unary(op: str) -> Callable[[Graph, int, Bound], tuple[str, list[Any], Mapping[str, Any]]]:
    """Replaces the match by an operator of `x`."""
    return lambda graph, index, bound: (op, [bound["x"]], {})


def about(value: float) -> Callable[[Any], bool]:
    return lambda given: isinstance(given, int | float) and abs(given - value) < 1e-6 * abs(value)


def along(op: str) -> Callable[[Graph, int, Bound], tuple[str, list[Any], Mapping[str, Any]] | None]:
    """A row operator along the axis of the match's reductions, which must agree."""

    def make(graph: Graph, index: int, bound: Bound) -> tuple[str, list[Any], Mapping[str, Any]] | None:
        axes = {bound[key] for key in ("$dim", "$dim2") if key in bound}
        if len(axes) != 1 or not isinstance(next(iter(axes)), int) or layout_of(graph, bound["x"]) != "":
            return None
        return op, [bound["x"]], {"dim": axes.pop()}

    return make


def _is_last(graph: Graph, bound: Bound) -> bool:
    rank = len(graph.nodes[bound["x"]].shape)
    return all(bound[key] in (-1, rank - 1) for key in ("$dim", "$dim2") if key in bound)


def norm(op: str) -> Callable[[Graph, int, Bound], tuple[str, list[Any], Mapping[str, Any]] | None]:
    def make(graph: Graph, index: int, bound: Bound) -> tuple[str, list[Any], Mapping[str, Any]] | None:
        if not _is_last(graph, bound) or layout_of(graph, bound["x"]) != "":
            return None
        if op == "plain_layer_norm":
            return (op, [bound["x"]], {}) if bound["$eps"] == 1e-05 else None
        if "w" in bound:
            width = graph.nodes[bound["x"]].shape[-1:]
            if graph.nodes[bound["w"]].op != "parameter" or graph.nodes[bound["w"]].shape != width:
                return None
            return "rms_norm_call", [bound["x"], bound["w"]], {"eps": bound["$eps"]}
        return "plain_rms_norm", [bound["x"]], {"eps": bound["$eps"]}

    return make


def merge(kind: str) -> Callable[[Graph, int, Bound], tuple[str, list[Any], Mapping[str, Any]] | None]:
    """Two scalings as one, or two shifts."""

    def make(graph: Graph, index: int, bound: Bound) -> tuple[str, list[Any], Mapping[str, Any]] | None:
        outer, inner = graph.nodes[index], graph.nodes[bound[""][1]]
        first, second = inner.attrs["value"], outer.attrs["value"]
        if isinstance(first, str) or isinstance(second, str):
            return None
        if kind == "scale":
            factors = (
                first if inner.op == "mul_scalar" else 1 / first,
                second if outer.op == "mul_scalar" else 1 / second,
            )
            return "mul_scalar", [bound["x"]], {"value": float(f"{factors[0] * factors[1]:.12g}")}
        terms = (first if inner.op == "add_scalar" else -first, second if outer.op == "add_scalar" else -second)
        return "add_scalar", [bound["x"]], {"value": float(f"{terms[0] + terms[1]:.12g}")}

    return make


def reduced_linear(graph: Graph, index: int, bound: Bound) -> tuple[str, list[Any], Mapping[str, Any]] | None:
    """The sum (or mean) over a linear layer's outputs is a product with the sum of its weight."""
    node, layer = graph.nodes[index], graph.nodes[bound[""][1]]
    rank = len(layer.shape)
    if node.attrs["dim"] not in (-1, rank - 1):
        return None
    x, op, keep = graph.nodes[bound["x"]], node.op, bool(node.attrs["keepdim"])
    weight: Any = ("weight_of", [], {"of": layer.module}, (layer.shape[-1], x.shape[-1]))
    column = (op, [weight], {"dim": 0, "keepdim": True}, ("1", x.shape[-1]))
    short = (*x.shape[:-1], "1")
    if layer.attrs["bias"]:
        bias: Any = ("bias_of", [], {"of": layer.module}, (layer.shape[-1],))
        total = (op, [bias], {"dim": 0, "keepdim": True}, ("1",))
        product: Any = ("linear_call", [bound["x"], column, total], {}, short)
    else:
        product = ("linear_no_bias", [bound["x"], column], {}, short)
    if keep:
        return product[0], product[1], product[2]
    return "squeeze", [product], {"dim": -1}


def reassociate(graph: Graph, index: int, bound: Bound) -> tuple[str, list[Any], Mapping[str, Any]] | None:
    """(a b) c as a (b c), if c is narrow."""
    b, c = graph.nodes[bound["b"]].shape, graph.nodes[bound["c"]].shape
    if len(b) != 2 or len(c) != 2 or c[1] not in ("1", "out"):
        return None
    return "matmul", [bound["a"], ("matmul", [bound["b"], bound["c"]], {}, (b[0], c[1]))], {}


def attention(graph: Graph, index: int, bound: Bound) -> tuple[str, list[Any], Mapping[str, Any]] | None:
    if len(graph.nodes[bound["q"]].shape) != 4 or graph.nodes[bound["q"]].dtype != "float32":
        return None
    causal = any(graph.nodes[each].op == "masked_fill" for each in bound[""])
    return "sdpa", [bound["q"], bound["k"], bound["v"]], {"causal": causal}


def bias_product(graph: Graph, index: int, bound: Bound) -> tuple[str, list[Any], Mapping[str, Any]] | None:
    """A product plus a tensor as one call."""
    product, added = graph.nodes[bound[""][1]], graph.nodes[bound["c"]]
    rank = len(product.shape)
    if graph.nodes[index].shape != product.shape or any(len(graph.nodes[bound[n]].shape) != rank for n in "ab"):
        return None
    if product.op == "linear" or rank not in (2, 3) or len(added.shape) > rank:
        return None
    op = "addmm" if rank == 2 else "baddbmm"
    return op, [bound["c"], bound["a"], bound["b"]], {"beta": 1, "alpha": 1}


def diagonal(graph: Graph, index: int, bound: Bound) -> tuple[str, list[Any], Mapping[str, Any]] | None:
    return ("mul", [bound["x"], bound["d"]], {}) if len(graph.nodes[bound["x"]].shape) == 2 else None


def pool_first(graph: Graph, index: int, bound: Bound) -> tuple[str, list[Any], Mapping[str, Any]] | None:
    """A function that never falls commutes with a maximum."""
    inner, pool = graph.nodes[bound[""][1]], graph.nodes[index]
    pooled = (pool.op, [bound["x"]], dict(pool.attrs), pool.shape)
    return inner.op, [pooled], dict(inner.attrs)


def lerp(graph: Graph, index: int, bound: Bound) -> tuple[str, list[Any], Mapping[str, Any]] | None:
    shapes = {graph.nodes[bound[name]].shape for name in ("a", "b", "g")}
    return ("lerp", [bound["b"], bound["a"], bound["g"]], {}) if len(shapes) == 1 else None


def addcmul(graph: Graph, index: int, bound: Bound) -> tuple[str, list[Any], Mapping[str, Any]] | None:
    shape = graph.nodes[index].shape
    fits = graph.nodes[bound["c"]].shape == shape == graph.nodes[bound[""][1]].shape
    return ("addcmul", [bound["c"], bound["a"], bound["b"]], {}) if fits else None

"""Algebra: functions that torch has fused calls for, scalings that merge, products that can be smaller."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from evaluators.generator.graph import Graph
from evaluators.generator.rules.patterns import Bound, Rewrite
from evaluators.generator.rules.regions import layout_of

_LAST = {"dim": -1}


def _unary(op: str) -> Callable[[Graph, int, Bound], tuple[str, list[Any], Mapping[str, Any]]]:
    """Replaces the match by an operator of `x`."""
    return lambda graph, index, bound: (op, [bound["x"]], {})


def _about(value: float) -> Callable[[Any], bool]:
    return lambda given: isinstance(given, int | float) and abs(given - value) < 1e-6 * abs(value)


def _along(op: str) -> Callable[[Graph, int, Bound], tuple[str, list[Any], Mapping[str, Any]] | None]:
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


def _norm(op: str) -> Callable[[Graph, int, Bound], tuple[str, list[Any], Mapping[str, Any]] | None]:
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


def _merge(kind: str) -> Callable[[Graph, int, Bound], tuple[str, list[Any], Mapping[str, Any]] | None]:
    """Two scalings as one, or two shifts."""

    def make(graph: Graph, index: int, bound: Bound) -> tuple[str, list[Any], Mapping[str, Any]] | None:
        outer, inner = graph.nodes[index], graph.nodes[bound[""][1]]
        first, second = inner.attrs["value"], outer.attrs["value"]
        if isinstance(first, str) or isinstance(second, str):
            return None
        if kind == "scale":
            factors = (first if inner.op == "mul_scalar" else 1 / first, second if outer.op == "mul_scalar" else 1 / second)
            return "mul_scalar", [bound["x"]], {"value": float(f"{factors[0] * factors[1]:.12g}")}
        terms = (first if inner.op == "add_scalar" else -first, second if outer.op == "add_scalar" else -second)
        return "add_scalar", [bound["x"]], {"value": float(f"{terms[0] + terms[1]:.12g}")}

    return make


def _reduced_linear(graph: Graph, index: int, bound: Bound) -> tuple[str, list[Any], Mapping[str, Any]] | None:
    """The sum (or mean) over a linear layer's outputs is a product with the sum of its weight."""
    node, layer = graph.nodes[index], graph.nodes[bound[""][1]]
    rank = len(layer.shape)
    if node.attrs["dim"] not in (-1, rank - 1):
        return None
    x, op, keep = graph.nodes[bound["x"]], node.op, bool(node.attrs["keepdim"])
    weight = ("weight_of", [], {"of": layer.module}, (layer.shape[-1], x.shape[-1]))
    column = (op, [weight], {"dim": 0, "keepdim": True}, ("1", x.shape[-1]))
    short = (*x.shape[:-1], "1")
    if layer.attrs["bias"]:
        bias = ("bias_of", [], {"of": layer.module}, (layer.shape[-1],))
        total = (op, [bias], {"dim": 0, "keepdim": True}, ("1",))
        product = ("linear_call", [bound["x"], column, total], {}, short)
    else:
        product = ("linear_no_bias", [bound["x"], column], {}, short)
    if keep:
        return product[0], product[1], product[2]
    return "squeeze", [product], {"dim": -1}


def _reassociate(graph: Graph, index: int, bound: Bound) -> tuple[str, list[Any], Mapping[str, Any]] | None:
    """(a b) c as a (b c), if c is narrow."""
    b, c = graph.nodes[bound["b"]].shape, graph.nodes[bound["c"]].shape
    if len(b) != 2 or len(c) != 2 or c[1] not in ("1", "out"):
        return None
    return "matmul", [bound["a"], ("matmul", [bound["b"], bound["c"]], {}, (b[0], c[1]))], {}


def _attention(graph: Graph, index: int, bound: Bound) -> tuple[str, list[Any], Mapping[str, Any]] | None:
    if len(graph.nodes[bound["q"]].shape) != 4 or graph.nodes[bound["q"]].dtype != "float32":
        return None
    causal = any(graph.nodes[each].op == "masked_fill" for each in bound[""])
    return "sdpa", [bound["q"], bound["k"], bound["v"]], {"causal": causal}


def _bias_product(graph: Graph, index: int, bound: Bound) -> tuple[str, list[Any], Mapping[str, Any]] | None:
    """A product plus a tensor as one call."""
    product, added = graph.nodes[bound[""][1]], graph.nodes[bound["c"]]
    rank = len(product.shape)
    if graph.nodes[index].shape != product.shape or any(len(graph.nodes[bound[n]].shape) != rank for n in "ab"):
        return None
    if product.op == "linear" or rank not in (2, 3) or len(added.shape) > rank:
        return None
    op = "addmm" if rank == 2 else "baddbmm"
    return op, [bound["c"], bound["a"], bound["b"]], {"beta": 1, "alpha": 1}


def _diagonal(graph: Graph, index: int, bound: Bound) -> tuple[str, list[Any], Mapping[str, Any]] | None:
    return ("mul", [bound["x"], bound["d"]], {}) if len(graph.nodes[bound["x"]].shape) == 2 else None


def _pool_first(graph: Graph, index: int, bound: Bound) -> tuple[str, list[Any], Mapping[str, Any]] | None:
    """A function that never falls commutes with a maximum."""
    inner, pool = graph.nodes[bound[""][1]], graph.nodes[index]
    pooled = (pool.op, [bound["x"]], dict(pool.attrs), pool.shape)
    return inner.op, [pooled], dict(inner.attrs)


def _lerp(graph: Graph, index: int, bound: Bound) -> tuple[str, list[Any], Mapping[str, Any]] | None:
    shapes = {graph.nodes[bound[name]].shape for name in ("a", "b", "g")}
    return ("lerp", [bound["b"], bound["a"], bound["g"]], {}) if len(shapes) == 1 else None


def _addcmul(graph: Graph, index: int, bound: Bound) -> tuple[str, list[Any], Mapping[str, Any]] | None:
    shape = graph.nodes[index].shape
    fits = graph.nodes[bound["c"]].shape == shape == graph.nodes[bound[""][1]].shape
    return ("addcmul", [bound["c"], bound["a"], bound["b"]], {}) if fits else None


_NEVER_FALL = "relu|sigmoid|tanh|softplus|leaky_relu|elu|selu|hardsigmoid|relu6|clamp|softsign|logsigmoid"
_SCALE = {"value": "$scale"}
_SCORES = ("matmul", "q", ("transpose", "k", {"first": -2, "second": -1}))
_SCALED = ("mul_scalar", _SCORES, {"value": "self.head_dim ** -0.5"})
_SHIFTED = ("sub", "x", ("amax", "x", {"dim": "$dim", "keepdim": True}))
_EXPONENTIALS = ("exp", _SHIFTED)
_CENTRED = ("sub", "x", ("mean", "x", {"dim": "$dim", "keepdim": True}))
_FACTOR = (
    "rsqrt",
    ("add_scalar", ("mean", ("square", "x"), {"dim": "$dim", "keepdim": True}), {"value": "$eps"}),
)

FUSED_CALLS = [
    Rewrite("softmax", ("div", _EXPONENTIALS, ("sum", _EXPONENTIALS, {"dim": "$dim2", "keepdim": True})),
            _along("softmax"), "Softmax is written out: a maximum, a difference, an exponential, a sum and a quotient, each a pass.",
            "torch.softmax reads and writes each row once."),
    Rewrite("layer_norm", ("div", _CENTRED, ("sqrt", ("add_scalar", ("mean", ("square", _CENTRED), {"dim": "$dim2", "keepdim": True}),
            {"value": "$eps"}))), _norm("plain_layer_norm"), "Layer normalisation is written out in seven passes over the rows.",
            "F.layer_norm computes mean, variance and result in one kernel."),
    Rewrite("rms_norm_scaled", ("mul", ("mul", "x", _FACTOR), "w"), _norm("rms"),
            "RMS normalisation is written out: square, mean, root, and two products, each a pass.",
            "F.rms_norm takes the weight along in one call."),
    Rewrite("rms_norm", ("mul", "x", _FACTOR), _norm("rms"),
            "RMS normalisation is written out: square, mean, reciprocal root and product.", "F.rms_norm is one call."),
    Rewrite("log_softmax", ("log", ("softmax", "x", {"dim": "$dim"})), _along("log_softmax"),
            "The logarithm of a softmax is a second pass, and loses digits for small weights.", "torch.log_softmax is one pass."),
    Rewrite("attention", ("matmul", ("softmax", _SCALED), "v"), _attention,
            "Attention is written out, so the whole matrix of scores goes through memory several times.",
            "F.scaled_dot_product_attention keeps scores on chip."),
    Rewrite("causal_attention", ("matmul", ("softmax", ("masked_fill", _SCALED, ("causal_mask", _SCALED))), "v"), _attention,
            "Causal attention computes all scores, masks half of them, and moves the whole matrix through memory.",
            "F.scaled_dot_product_attention with is_causal=True skips the masked half."),
    Rewrite("silu", ("mul", "x", ("sigmoid", "x")), _unary("silu"), "x times its sigmoid is two passes.", "F.silu is one."),
    Rewrite("mish", ("mul", "x", ("tanh", ("softplus", "x"))), _unary("mish"), "Mish is written out in three passes.", "F.mish is one."),
    Rewrite("gelu", ("mul", ("mul_scalar", "x", {"value": 0.5}), ("add_scalar", ("erf", ("div_scalar", "x", {"value": _about(2**0.5)})),
            {"value": 1.0})), _unary("gelu"), "GELU is written out with the error function in five passes.", "F.gelu is one."),
    Rewrite("gelu_tanh", ("mul", ("mul_scalar", "x", {"value": 0.5}), ("add_scalar", ("tanh", ("mul_scalar", ("add", "x", ("mul_scalar",
            ("mul", ("square", "x"), "x"), {"value": 0.044715})), {"value": _about(0.7978845608028654)})), {"value": 1.0})),
            _unary("gelu_tanh"), "The tanh form of GELU is written out in nine passes.", 'F.gelu with approximate="tanh" is one.'),
    Rewrite("hardswish", ("div_scalar", ("mul", "x", ("clamp", ("add_scalar", "x", {"value": 3.0}), {"low": 0.0, "high": 6.0})),
            {"value": 6.0}), _unary("hardswish"), "Hard swish is written out in four passes.", "F.hardswish is one."),
    Rewrite("bias_product", ("add", ("matmul|bmm", "a", "b"), "c"), _bias_product,
            "The sum after the product is a pass of its own over the product's result.", "torch.addmm or baddbmm adds while it writes."),
    Rewrite("lerp", ("add", ("mul", "a", "g"), ("mul", "b", ("rsub_scalar", "g", {"value": 1.0}))), _lerp,
            "A gate mixes two tensors in four operators.", "torch.lerp mixes them in one."),
    Rewrite("addcmul", ("add", "c", ("mul", "a", "b")), _addcmul, "A product and a sum are two passes.",
            "torch.addcmul does both in one."),
]  # fmt: skip
"""Written-out functions, and torch's own calls for them."""

ALGEBRA = [
    Rewrite("merged_scales", ("mul_scalar|div_scalar", ("mul_scalar|div_scalar", "x")), _merge("scale"),
            "Scalings by constants follow each other, each in a pass of its own.", "One multiplication by their product does the same."),
    Rewrite("merged_shifts", ("add_scalar|sub_scalar", ("add_scalar|sub_scalar", "x")), _merge("shift"),
            "Constants are added one after the other.", "Add their sum once."),
    Rewrite("summed_weight", ("sum|mean", ("linear", "x")), _reduced_linear,
            "The linear layer computes a whole row of outputs, of which only the sum or mean is kept.",
            "Reduce the weight first, in every call, and use a matrix-vector product."),
    Rewrite("scale_after_sum", ("sum|mean", ("mul_scalar|div_scalar", "x")),
            lambda graph, index, bound: (
                graph.nodes[bound[""][1]].op,
                [(graph.nodes[index].op, [bound["x"]], dict(graph.nodes[index].attrs), graph.nodes[index].shape)],
                dict(graph.nodes[bound[""][1]].attrs)),
            "The scaling goes over the whole tensor just before it is reduced.", "Reduce first, and scale the few results."),
    Rewrite("reassociated", ("matmul", ("matmul", "a", "b"), "c"), _reassociate,
            "The first product is large, and the second makes it narrow again.", "Multiply the two right matrices first: far fewer multiply-adds."),
    Rewrite("diagonal", ("matmul", "x", ("diag", "d")), _diagonal,
            "A product with a diagonal matrix multiplies mostly by zeros.", "Scale the columns by the diagonal."),
    Rewrite("pool_first", ("max_pool1d|max_pool2d", (_NEVER_FALL, "x")), _pool_first,
            "The activation never falls, so it commutes with max pooling, but it is computed on the large tensor.",
            "Pool first, and activate the few maxima."),
    Rewrite("scale_after_pool", ("avg_pool1d|avg_pool2d", ("mul_scalar|div_scalar", "x")), _pool_first,
            "The scaling is linear, so it commutes with average pooling, but it runs on the large tensor.",
            "Pool first, and scale the few means."),
]  # fmt: skip
"""Identities that save work, whatever computes them."""

"""The identities: what is written out in a reference, what computes the same, and a teacher's words about both."""

from __future__ import annotations

from evaluators.generator.rules.algebra import (
    about,
    addcmul,
    along,
    attention,
    bias_product,
    diagonal,
    lerp,
    merge,
    norm,
    pool_first,
    reassociate,
    reduced_linear,
    unary,
)
from evaluators.generator.rules.patterns import Rewrite

_NEVER_FALL = "relu|sigmoid|tanh|softplus|leaky_relu|elu|selu|hardsigmoid|relu6|clamp|softsign|logsigmoid"
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
    Rewrite(
        "softmax",
        ("div", _EXPONENTIALS, ("sum", _EXPONENTIALS, {"dim": "$dim2", "keepdim": True})),
        along("softmax"),
        "Softmax is written out: a maximum, a difference, an exponential, a sum and a quotient, each a pass.",
        "torch.softmax reads and writes each row once.",
    ),
    Rewrite(
        "layer_norm",
        (
            "div",
            _CENTRED,
            (
                "sqrt",
                ("add_scalar", ("mean", ("square", _CENTRED), {"dim": "$dim2", "keepdim": True}), {"value": "$eps"}),
            ),
        ),
        norm("plain_layer_norm"),
        "Layer normalisation is written out in seven passes over the rows.",
        "F.layer_norm computes mean, variance and result in one kernel.",
    ),
    Rewrite(
        "rms_norm_scaled",
        ("mul", ("mul", "x", _FACTOR), "w"),
        norm("rms"),
        "RMS normalisation is written out: square, mean, root, and two products, each a pass.",
        "F.rms_norm takes the weight along in one call.",
    ),
    Rewrite(
        "rms_norm",
        ("mul", "x", _FACTOR),
        norm("rms"),
        "RMS normalisation is written out: square, mean, reciprocal root and product.",
        "F.rms_norm is one call.",
    ),
    Rewrite(
        "log_softmax",
        ("log", ("softmax", "x", {"dim": "$dim"})),
        along("log_softmax"),
        "The logarithm of a softmax is a second pass, and loses digits for small weights.",
        "torch.log_softmax is one pass.",
    ),
    Rewrite(
        "attention",
        ("matmul", ("softmax", _SCALED), "v"),
        attention,
        "Attention is written out, so the whole matrix of scores goes through memory several times.",
        "F.scaled_dot_product_attention keeps scores on chip.",
    ),
    Rewrite(
        "causal_attention",
        ("matmul", ("softmax", ("masked_fill", _SCALED, ("causal_mask", _SCALED))), "v"),
        attention,
        "Causal attention computes all scores, masks half of them, and moves the whole matrix through memory.",
        "F.scaled_dot_product_attention with is_causal=True skips the masked half.",
    ),
    Rewrite(
        "silu", ("mul", "x", ("sigmoid", "x")), unary("silu"), "x times its sigmoid is two passes.", "F.silu is one."
    ),
    Rewrite(
        "mish",
        ("mul", "x", ("tanh", ("softplus", "x"))),
        unary("mish"),
        "Mish is written out in three passes.",
        "F.mish is one.",
    ),
    Rewrite(
        "gelu",
        (
            "mul",
            ("mul_scalar", "x", {"value": 0.5}),
            ("add_scalar", ("erf", ("div_scalar", "x", {"value": about(2**0.5)})), {"value": 1.0}),
        ),
        unary("gelu"),
        "GELU is written out with the error function in five passes.",
        "F.gelu is one.",
    ),
    Rewrite(
        "gelu_tanh",
        (
            "mul",
            ("mul_scalar", "x", {"value": 0.5}),
            (
                "add_scalar",
                (
                    "tanh",
                    (
                        "mul_scalar",
                        ("add", "x", ("mul_scalar", ("mul", ("square", "x"), "x"), {"value": 0.044715})),
                        {"value": about(0.7978845608028654)},
                    ),
                ),
                {"value": 1.0},
            ),
        ),
        unary("gelu_tanh"),
        "The tanh form of GELU is written out in nine passes.",
        'F.gelu with approximate="tanh" is one.',
    ),
    Rewrite(
        "hardswish",
        (
            "div_scalar",
            ("mul", "x", ("clamp", ("add_scalar", "x", {"value": 3.0}), {"low": 0.0, "high": 6.0})),
            {"value": 6.0},
        ),
        unary("hardswish"),
        "Hard swish is written out in four passes.",
        "F.hardswish is one.",
    ),
    Rewrite(
        "bias_product",
        ("add", ("matmul|bmm", "a", "b"), "c"),
        bias_product,
        "The sum after the product is a pass of its own over the product's result.",
        "torch.addmm or baddbmm adds while it writes.",
    ),
    Rewrite(
        "lerp",
        ("add", ("mul", "a", "g"), ("mul", "b", ("rsub_scalar", "g", {"value": 1.0}))),
        lerp,
        "A gate mixes two tensors in four operators.",
        "torch.lerp mixes them in one.",
    ),
    Rewrite(
        "addcmul",
        ("add", "c", ("mul", "a", "b")),
        addcmul,
        "A product and a sum are two passes.",
        "torch.addcmul does both in one.",
    ),
]
"""Written-out functions, and torch's own calls for them."""

ALGEBRA = [
    Rewrite(
        "merged_scales",
        ("mul_scalar|div_scalar", ("mul_scalar|div_scalar", "x")),
        merge("scale"),
        "Scalings by constants follow each other, each in a pass of its own.",
        "One multiplication by their product does the same.",
    ),
    Rewrite(
        "merged_shifts",
        ("add_scalar|sub_scalar", ("add_scalar|sub_scalar", "x")),
        merge("shift"),
        "Constants are added one after the other.",
        "Add their sum once.",
    ),
    Rewrite(
        "summed_weight",
        ("sum|mean", ("linear", "x")),
        reduced_linear,
        "The linear layer computes a whole row of outputs, of which only the sum or mean is kept.",
        "Reduce the weight first, in every call, and use a matrix-vector product.",
    ),
    Rewrite(
        "scale_after_sum",
        ("sum|mean", ("mul_scalar|div_scalar", "x")),
        lambda graph, index, bound: (
            graph.nodes[bound[""][1]].op,
            [(graph.nodes[index].op, [bound["x"]], dict(graph.nodes[index].attrs), graph.nodes[index].shape)],
            dict(graph.nodes[bound[""][1]].attrs),
        ),
        "The scaling goes over the whole tensor just before it is reduced.",
        "Reduce first, and scale the few results.",
    ),
    Rewrite(
        "reassociated",
        ("matmul", ("matmul", "a", "b"), "c"),
        reassociate,
        "The first product is large, and the second makes it narrow again.",
        "Multiply the two right matrices first: far fewer multiply-adds.",
    ),
    Rewrite(
        "diagonal",
        ("matmul", "x", ("diag", "d")),
        diagonal,
        "A product with a diagonal matrix multiplies mostly by zeros.",
        "Scale the columns by the diagonal.",
    ),
    Rewrite(
        "pool_first",
        ("max_pool1d|max_pool2d", (_NEVER_FALL, "x")),
        pool_first,
        "The activation never falls, so it commutes with max pooling, but it is computed on the large tensor.",
        "Pool first, and activate the few maxima.",
    ),
    Rewrite(
        "scale_after_pool",
        ("avg_pool1d|avg_pool2d", ("mul_scalar|div_scalar", "x")),
        pool_first,
        "The scaling is linear, so it commutes with average pooling, but it runs on the large tensor.",
        "Pool first, and scale the few means.",
    ),
]
"""Identities that save work, whatever computes them."""

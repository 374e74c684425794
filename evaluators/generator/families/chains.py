"""Level 2: a product, a convolution or an input, followed by element-wise chains, norms and reductions."""

from __future__ import annotations

from random import Random

from evaluators.generator.builder import Builder, Drawn
from evaluators.generator.families.grammar import (
    GATES,
    SMOOTH,
    chain,
    image,
    norm,
    rows,
    signal,
    weight_like,
    written_activation,
    written_softmax,
)

REDUCTIONS = ("sum", "mean", "amax", "amin", "logsumexp", "norm", "std")


def linear_chain(rng: Random) -> Drawn:
    """A linear layer, then a chain; perhaps a norm or a reduction, then more of the chain."""
    b = Builder(rng, rng.choices(("float32", "bfloat16"), (14, 1))[0])
    x = rows(b, width="in_features", init=True)
    y = b.linear(x, b.size("out_features", "features", True), bias=rng.random() < 0.7)
    y = chain(b, y, rng.randint(1, 4))
    y, tail = _middle(b, y)
    y = chain(b, y, rng.randint(0 if tail != "none" else 2, 2))
    return b.done(y, 2, "linear_chain", f"linear_{tail}", "batch_size", "matmul", "elementwise", *_tag(tail))


def _middle(b: Builder, y: int) -> tuple[int, str]:
    kind = b.rng.choices(("none", "norm", "reduction", "softmax", "centre"), (4, 5, 4, 2, 2))[0]
    if kind == "norm":
        return norm(b, y), kind
    if kind == "reduction":
        return b.reduce(b.rng.choice(REDUCTIONS), y, -1, keepdim=b.rng.random() < 0.5), kind
    if kind == "softmax":
        return (written_softmax(b, y) if b.rng.random() < 0.5 else b.along("softmax", y)), kind
    if kind == "centre":
        mean = b.reduce(b.rng.choice(("mean", "amax")), y, b.rng.choice((0, -1)), name="centre")
        return b.binary("sub", y, mean), kind
    return y, kind


def _tag(kind: str) -> tuple[str, ...]:
    return {"norm": ("normalisation",), "reduction": ("reduction",), "softmax": ("reduction",)}.get(kind, ())


def rowwise_chain(rng: Random) -> Drawn:
    """Chains, norms and reductions on rows, without a product."""
    b = Builder(rng, rng.choices(("float32", "bfloat16"), (12, 1))[0])
    x = rows(b, width="features", role="width", init=True)
    earlier = [x]
    if rng.random() < 0.35:
        earlier.append(b.input("y", "batch_size", "features"))
    start = b.binary(rng.choice(("add", "mul", "sub")), earlier[0], earlier[1]) if len(earlier) == 2 else x
    y = chain(b, start, rng.randint(1, 3), earlier=earlier)
    y = written_activation(b, y) if rng.random() < 0.3 else y
    y, tail = _middle(b, y)
    y = chain(b, y, rng.randint(1, 3), earlier=earlier if b.shape(y) == b.shape(x) else ())
    if "features" in b.init_sizes and not any("features" in node.init for node in b.nodes):
        b.init_sizes.remove("features")
    return b.done(y, 2, "rowwise_chain", f"rowwise_{tail}", "batch_size", "elementwise", *_tag(tail))


def elementwise_fusion(rng: Random) -> Drawn:
    """A long element-wise chain on an image, a signal or rows."""
    b = Builder(rng, rng.choices(("float32", "bfloat16"), (10, 1))[0])
    is_image = rng.random() < 0.5
    if is_image:
        x = image(b, init=True, layout="channels_last" if rng.random() < 0.15 else "")
    else:
        x = rows(b, role="width", init=True)
    y = chain(b, x, rng.randint(3, 7), is_image, [x])
    y = written_activation(b, y) if rng.random() < 0.3 else y
    for name in list(b.init_sizes):
        if not any(name in node.init for node in b.nodes):
            b.init_sizes.remove(name)
    return b.done(y, 2, "elementwise_fusion", "chain", "batch_size", "elementwise")


def conv_chain(rng: Random) -> Drawn:
    """A convolution, then a chain with norms, pools and reductions."""
    b = Builder(rng)
    rank = rng.choice((1, 2, 2, 2))
    x = image(b, layout="channels_last" if rng.random() < 0.1 else "") if rank == 2 else signal(b)
    depthwise = rng.random() < 0.2
    out = "in_channels" if depthwise else b.size("out_channels", "channels", True)
    y = b.conv(x, out, rng.choice((1, 3, 3, 5)), rank, groups="in_channels" if depthwise else "1",
               bias=rng.random() < 0.7, padding=rng.choice((-1, -1, 0)))  # fmt: skip
    y = chain(b, y, rng.randint(1, 3), True)
    kind = rng.choice(("none", "norm", "pool", "global", "channel", "softmax", "norm"))
    if kind == "norm":
        y = norm(b, y, True)
    elif kind == "pool":
        y = b.pool(f"{rng.choice(('max', 'avg'))}_pool{rank}d", y, 2)
    elif kind == "global":
        y = b.reduce(
            rng.choice(("mean", "amax", "logsumexp")), y, tuple(range(2, rank + 2)), keepdim=rng.random() < 0.5
        )
    elif kind == "channel":
        y = b.reduce(rng.choice(("mean", "amax", "amin", "sum", "logsumexp", "norm")), y, 1)
    elif kind == "softmax":
        y = b.along("softmax", y, 1)
    is_image = kind not in ("global", "channel")
    y = chain(b, y, rng.randint(1 if kind != "none" else 2, 3), is_image)
    return b.done(y, 2, "conv_chain", f"conv{rank}d_{kind}", "batch_size", "convolution", "elementwise")


def matmul_chain(rng: Random) -> Drawn:
    """A product of two inputs, then a chain, perhaps with a softmax or a reduction."""
    b = Builder(rng, rng.choices(("float32", "bfloat16"), (12, 1))[0])
    batched = rng.random() < 0.5
    m = b.size("rows", "length" if batched else "batch")
    n, k = (
        b.size("columns", "length" if batched else "features"),
        b.size("inner", "head_dim" if batched else "features"),
    )
    lead = (b.size("batch_size", "batch"),) if batched else ()
    transposed = rng.random() < 0.5
    first = b.input("a", *lead, m, k)
    second = b.input("b", *lead, *((n, k) if transposed else (k, n)))
    second = b.transpose(second) if transposed else second
    y = b.add("bmm", (first, second), (*lead, m, n)) if batched else b.matmul(first, second)
    if rng.random() < 0.4:
        y = b.binary("add", y, b.input("c", *((n,) if rng.random() < 0.6 else (*lead, m, n))))
    y = chain(b, y, rng.randint(1, 3)) if _no_weights(b) else y
    y, tail = _reduced(b, y)
    y = b.activation(y) if rng.random() < 0.5 else b.unary("mul_scalar", y)
    return b.done(y, 2, "matmul_chain", f"matmul_{tail}", "batch_size" if batched else "rows", "matmul", *_tag(tail))


def _no_weights(b: Builder) -> bool:
    """The constructor takes the sizes of weights that a chain may draw."""
    b.size("columns", b.roles["columns"], init=True)
    return True


def _reduced(b: Builder, y: int) -> tuple[int, str]:
    kind = b.rng.choice(("none", "softmax", "reduction", "log_softmax", "none"))
    if kind == "reduction":
        return b.reduce(b.rng.choice(REDUCTIONS), y, -1, keepdim=b.rng.random() < 0.5), kind
    return (b.along(kind, y) if kind != "none" else y), kind


def gated_products(rng: Random) -> Drawn:
    """Two linear layers of one input, joined by a gate, a quotient or an extreme."""
    b = Builder(rng, rng.choices(("float32", "bfloat16"), (14, 1))[0])
    x = rows(b, width="in_features", init=True)
    out = b.size("out_features", "features", True)
    bias = rng.random() < 0.6
    value = b.linear(x, out, "value", bias, "value")
    gate = b.linear(x, out, "gate", bias, "gate")
    kind = rng.choice(("glu", "swish", "highway", "quotient", "extreme", "difference", "exponential"))
    if kind == "glu":
        y = b.binary("mul", value, b.activation(gate, GATES, "gate"))
    elif kind == "swish":
        y = b.binary("mul", value, b.activation(gate, SMOOTH, "gate"))
    elif kind == "highway":
        opened = b.unary("sigmoid", gate, "gate")
        closed = b.unary("rsub_scalar", opened, "closed", value=1.0)
        third = b.linear(x, out, "carry", bias, "carried")
        y = b.binary("add", b.binary("mul", value, opened, "value"), b.binary("mul", third, closed, "carried"))
    elif kind == "quotient":
        y = b.binary("div", value, b.positive(rng.choice(("abs", "square")), gate))
    elif kind == "extreme":
        y = b.binary(rng.choice(("maximum", "minimum")), value, gate)
    elif kind == "difference":
        y = b.unary(rng.choice(("tanh", "square", "gelu")), b.binary("sub", value, gate))
    else:
        y = b.binary("mul", value, b.unary("neg_exp", b.unary("softplus", gate, "gate"), "gate"))
    y = chain(b, y, rng.randint(0, 3))
    y, tail = _middle(b, y) if rng.random() < 0.4 else (y, "none")
    return b.done(y, 2, "gated_products", f"{kind}_{tail}", "batch_size", "matmul", "gating", *_tag(tail))


def reducible_product(rng: Random) -> Drawn:
    """A product whose result is summed, scaled or reassociated: algebra saves most of the work."""
    b = Builder(rng)
    kind = rng.choice(("sum", "mean", "chain", "diagonal", "repeated", "scaled"))
    if kind in ("sum", "mean"):
        x = rows(b, width="in_features", init=True)
        y = b.linear(x, b.size("out_features", "features", True))
        for _ in range(rng.randint(0, 2)):
            y = b.unary(rng.choice(("mul_scalar", "div_scalar")), y)
        y = b.reduce(kind, y, -1, keepdim=rng.random() < 0.6)
        y = chain(b, y, rng.randint(1, 3)) if len(b.shape(y)) == 2 else b.activation(y)
        for _ in range(1):
            y = b.activation(y)
    elif kind == "chain":
        m, k, n = b.size("rows", "batch"), b.size("inner", "features"), b.size("columns", "features")
        first, second = b.input("a", m, k), b.input("b", k, n)
        y = b.matmul(b.matmul(first, second), b.input("c", n, rng.choice(("1", b.size("out", "16")))))
        if "out" in b.roles and "out" not in b.shape(y):
            del b.roles["out"]
        y = b.activation(y)
        return b.done(y, 2, "reducible_product", kind, "rows", "matmul")
    elif kind == "diagonal":
        x = rows(b, width="in_features", init=True)
        d = b.add("diag", (b.parameter("diagonal", "in_features"),), ("in_features", "in_features"))
        y = chain(b, b.matmul(x, d), rng.randint(1, 3))
    elif kind == "repeated":
        x = rows(b, width="in_features", init=True)
        out = b.size("out_features", "features", True)
        first = b.linear(x, out, var="y")
        node = b.nodes[first]
        b.nodes.append(node)  # the same layer once more
        again = len(b.nodes) - 1
        y = b.binary("mul", b.activation(first, ("tanh", "silu", "gelu"), "value"), b.activation(again, GATES, "gate"))
    else:
        x = rows(b, width="in_features", init=True)
        y = b.unary("mul_scalar", x)
        y = b.linear(y, b.size("out_features", "features", True), bias=False)
        y = b.unary("div_scalar", b.unary("mul_scalar", y))
        y = b.binary("add", y, weight_like(b, y, "shift", False))
        y = b.activation(y)
    return b.done(y, 2, "reducible_product", kind, "batch_size", "matmul", "algebra")


FAMILIES = {
    "linear_chain": (linear_chain, 22),
    "rowwise_chain": (rowwise_chain, 16),
    "elementwise_fusion": (elementwise_fusion, 14),
    "conv_chain": (conv_chain, 18),
    "matmul_chain": (matmul_chain, 14),
    "gated_products": (gated_products, 12),
    "reducible_product": (reducible_product, 8),
}

"""Level 1: single operators over shapes, dtypes and layouts, and few-operator functions of that kind."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from evaluators.generator.builder import Builder, Drawn
from evaluators.generator.families.grammar import (
    LAYOUTS_2D,
    LAYOUTS_4D,
    draw_dtype,
    written_activation,
    written_layer_norm,
    written_softmax,
)
from evaluators.generator.graph import POSITIVE, Node


def tensor(b: Builder, name: str = "x", ranks: tuple[int, ...] = (2, 2, 3, 4), draw: str = "randn") -> int:
    """An input of a drawn rank and layout, then perhaps a view of it: a transpose or every second element."""
    rank = b.rng.choice(ranks)
    shape = [b.size("batch_size", "batch")]
    roles = {1: [], 2: [("width", "width")], 3: [("rows", "length"), ("width", "length")]}
    roles[4] = [("channels", "channels"), ("height", "space"), ("width", "space")]
    shape += [b.size(each, role) for each, role in roles[rank]]
    layout = b.rng.choice(LAYOUTS_4D if rank == 4 else LAYOUTS_2D if rank in (2, 3) else ("",))
    x = b.input(name, *shape, draw=draw, layout=layout)
    view = b.rng.choices(("", "transpose", "step"), (8, 2, 1))[0]
    if view == "transpose" and rank >= 2 and not layout:
        return b.transpose(x, *((1, 2) if rank >= 3 else (0, 1)))
    if view == "step" and not layout and rank >= 2:
        return b.view("step", x, (*shape[:-1], f"(({shape[-1]} + 1) // 2)"), index="..., ::2")
    return x


def unary(rng: Random) -> Drawn:
    b = Builder(rng, draw_dtype(rng))
    names = ["exp", "expm1", "log", "log1p", "sqrt", "rsqrt", "reciprocal", "square", "abs"]
    x = tensor(b)
    if rng.random() < 0.6:
        y = b.activation(x)
    elif rng.random() < 0.5:
        y = written_activation(b, x)
    else:
        op = rng.choice(names)
        if op in ("square", "abs"):
            y = b.unary(op, x)
        elif op in ("exp", "expm1"):
            y = b.unary(op, b.unary("clamp", x))
        else:
            y = b.unary(op, b.positive(rng.choice(("abs", "square")), x))
    return b.done(y, 1, "unary", b.nodes[y].op, "batch_size", "elementwise")


def binary(rng: Random) -> Drawn:
    b = Builder(rng, draw_dtype(rng))
    x = tensor(b, "x", (2, 3, 4))
    kind = rng.choice(("full", "row", "column", "outer"))
    shape = b.shape(x)
    given = [name for name in shape if name in b.roles]
    if kind == "full" or len(given) < len(shape):
        first = b.nodes[x] if b.nodes[x].op == "input" else b.nodes[b.nodes[x].args[0]]
        y = b.input("y", *first.shape)
        if b.nodes[x].op != "input":
            view = b.nodes[x]
            y = b.view(view.op, y, view.shape, **view.attrs)
    elif kind == "row":
        y = b.input("y", shape[-1])
    else:
        y = b.input("y", *shape[:-1], "1")
    op = rng.choice(("add", "sub", "mul", "maximum", "minimum", "div", "distance", "lerp"))
    if op == "div":
        z = b.binary("div", x, b.positive("abs", y))
    elif op == "distance":
        z = b.unary("square", b.binary("sub", x, y, "difference"))
    elif op == "lerp":
        z = b.binary("add", x, b.unary("mul_scalar", b.binary("sub", y, x, "difference")))
    else:
        z = b.binary(op, x, y)
    if op in ("add", "sub", "mul", "maximum", "minimum") and rng.random() < 0.6:
        z = b.activation(z)
    return b.done(z, 1, "binary", f"{op}_{kind}", "batch_size", "elementwise")


def reduction(rng: Random) -> Drawn:
    b = Builder(rng, rng.choices(("float32", "bfloat16"), (12, 1))[0])
    x = tensor(b)
    op = rng.choice(("sum", "mean", "amax", "amin", "var", "std", "logsumexp", "norm", "norm1", "argmax", "argmin"))
    rank = len(b.shape(x))
    axis = rng.choice([*range(rank)] + [-1] * 2)
    dim: int | tuple[int, ...] = axis
    before = rng.choice(("", "", "square", "abs", "activation"))
    if before == "activation":
        x = b.activation(x, ("tanh", "softplus", "silu", "gelu", "mish", "elu"))
    elif before and not op.startswith("arg"):
        x = b.unary(before, x)
    if rank >= 3 and rng.random() < 0.4 and not op.startswith("arg"):
        dim = rng.choice([(1, 2), (0, 2), (-2, -1)])
    if op.startswith("arg"):
        shape = [size for place, size in enumerate(b.shape(x)) if place != axis % rank]
        y = b.add(op, (x,), shape, dim=dim, dtype="int64")
    else:
        y = b.reduce(op, x, dim, keepdim=rng.random() < 0.4)
    return b.done(y, 1, "reduction", op, "batch_size", "reduction")


def normalisation(rng: Random) -> Drawn:
    b = Builder(rng, draw_dtype(rng))
    x = tensor(b)
    rank = len(b.shape(x))
    dim = rng.choice((-1, -1, -1, 1 if rank > 2 else -1, -2 if rank > 2 else -1))
    kind = rng.choice(("softmax", "log_softmax", "softmin", "normalize", "layer", "rms", "written_softmax",
                       "log_of_softmax", "standardise", "l1", "max_scaled", "temperature"))  # fmt: skip
    if kind in ("softmax", "log_softmax", "softmin", "normalize"):
        y = b.along(kind, x, dim)
    elif kind == "written_softmax":
        y = written_softmax(b, x, dim)
    elif kind == "layer":
        y = written_layer_norm(b, x, dim) if rng.random() < 0.5 else b.layer_norm(x) if _has_sizes(b, x) else x
        if y == x:
            y = b.along("plain_layer_norm", x)
    elif kind == "rms":
        y = b.rms_norm(x, scaled=rng.random() < 0.5 and _has_sizes(b, x))
    elif kind == "log_of_softmax":
        y = b.add("log", (b.along("softmax", x, dim),), b.shape(x))
    elif kind == "standardise":
        centred = b.binary("sub", x, b.reduce("mean", x, dim, name="mean"), "centred")
        deviation = b.add("add_scalar", (b.reduce("std", x, dim, name="deviation"),), (), value=1e-05, span=POSITIVE)
        b.nodes[deviation] = _with_shape(b, deviation)
        y = b.binary("div", centred, deviation)
    elif kind == "l1":
        length = b.reduce("sum", b.unary("abs", x, "size"), dim, name="length")
        y = b.binary("div", x, _raised(b, length, 1e-05))
    elif kind == "max_scaled":
        y = b.binary("div", x, _raised(b, b.reduce("amax", b.unary("abs", x, "size"), dim, name="largest"), 1e-05))
    else:
        y = b.along("softmax", b.unary("div_scalar", x), dim)
    if rng.random() < 0.25:
        y = b.unary(rng.choice(("mul_scalar", "add_scalar", "tanh")), y)
    return b.done(y, 1, "normalisation", kind, "batch_size", "reduction", "normalisation")


def _has_sizes(b: Builder, x: int) -> bool:
    """Whether the last size is a constant that a constructor can take."""
    name = b.shape(x)[-1]
    if name in b.roles and name != "batch_size":
        b.size(name, b.roles[name], init=True)
        return True
    return False


def _raised(b: Builder, x: int, value: float) -> int:
    return b.add("add_scalar", (x,), b.shape(x), value=value, span=POSITIVE)


def _with_shape(b: Builder, index: int) -> Node:
    return replace(b.nodes[index], shape=b.shape(b.nodes[index].args[0]))


def product(rng: Random) -> Drawn:
    b = Builder(rng, rng.choices(("float32", "bfloat16", "float16"), (10, 2, 1))[0])
    m, n, k = b.size("rows", "batch"), b.size("columns", "features"), b.size("inner", "features")
    kind = rng.choice(("plain", "left", "right", "both", "gram", "three", "vector", "lower", "upper", "diagonal",
                       "batched", "batched_left", "batched_right", "scaled", "shared", "bilinear"))  # fmt: skip
    if kind in ("plain", "left", "right", "both", "scaled"):
        x = b.input("a", k, m) if kind in ("left", "both") else b.input("a", m, k)
        y = b.input("b", n, k) if kind in ("right", "both") else b.input("b", k, n)
        x = b.transpose(x) if kind in ("left", "both") else x
        y = b.transpose(y) if kind in ("right", "both") else y
        z = b.matmul(x, y)
        z = b.unary(rng.choice(("div_scalar", "mul_scalar", "abs", "square")), z) if kind == "scaled" else z
    elif kind == "gram":
        del b.roles["columns"]
        x = b.input("a", m, k)
        z = b.matmul(b.transpose(x), x)
    elif kind == "three":
        z = b.matmul(b.matmul(b.input("a", m, k), b.input("b", k, n)), b.input("c", n, b.size("out", "hidden")))
    elif kind in ("vector", "bilinear"):
        x = b.matmul(b.input("a", m, k), b.input("b", k, n))
        v = b.input("v", *((n, "1") if kind == "vector" else (m, n)))
        z = b.matmul(x, v) if kind == "vector" else b.reduce("sum", b.binary("mul", x, v), -1, keepdim=False)
    elif kind in ("lower", "upper", "diagonal"):
        del b.roles["columns"]
        a = b.input("a", m, k)
        square = b.input("b", *((k,) if kind == "diagonal" else (k, k)))
        if kind == "diagonal":
            z = b.matmul(a, b.add("diag", (square,), (k, k)))
        else:
            z = b.matmul(a, b.add("tril" if kind == "lower" else "triu", (square,), (k, k)))
    elif kind == "shared":
        batch = b.size("batch_size", "batch")
        del b.roles["rows"]
        x = b.input("x", batch, b.size("length", "length"), k)
        z = b.matmul(x, b.input("weight", k, n))
        return b.done(z, 1, "product", kind, "batch_size", "matmul")
    else:
        batch = b.size("batch_size", "batch")
        b.roles["rows"], b.roles["columns"], b.roles["inner"] = "length", "length", "head_dim"
        left, right = kind.endswith("left"), kind.endswith("right")
        x = b.input("a", batch, *((k, m) if left else (m, k)))
        y = b.input("b", batch, *((n, k) if right else (k, n)))
        z = b.add("bmm", (b.transpose(x, 1, 2) if left else x, b.transpose(y, 1, 2) if right else y), (batch, m, n))
        z = b.activation(z) if rng.random() < 0.3 else z
        return b.done(z, 1, "product", kind, "batch_size", "matmul")
    return b.done(z, 1, "product", kind, "rows", "matmul")


def convolution(rng: Random) -> Drawn:
    b = Builder(rng)
    rank = rng.choice((1, 1, 2, 2, 2, 3))
    batch = b.size("batch_size", "batch")
    channels = b.size("in_channels", "channels", True)
    spatial = {1: [("length", "length")], 2: [("height", "space"), ("width", "space")]}
    spatial[3] = [("depth", "volume"), ("height", "volume"), ("width", "volume")]
    layout = "channels_last" if rank == 2 and rng.random() < 0.25 else ""
    x = b.input("x", batch, channels, *(b.size(name, role) for name, role in spatial[rank]), layout=layout)
    kernel, stride = rng.choice((1, 3, 3, 5) if rank < 3 else (1, 3)), rng.choice((1, 1, 1, 2))
    depthwise = rng.random() < 0.35
    out = channels if depthwise else b.size("out_channels", "channels", True)
    padding = rng.choice((-1, -1, 0))
    groups = channels if depthwise else rng.choice(("1", "1", "2", "4"))
    options = {"stride": stride, "padding": padding, "groups": groups, "bias": rng.random() < 0.5}
    y = b.conv(x, out, kernel, rank, **options)  # type: ignore[arg-type]
    after = rng.choice(("", "activation", "scale", "pool", "sum"))
    if after == "activation":
        y = b.activation(y)
    elif after == "scale":
        y = b.unary("mul_scalar", y)
    elif after == "pool" and rank < 3:
        y = b.pool(f"{rng.choice(('max', 'avg'))}_pool{rank}d", y, 2)
    elif after == "sum":
        y = b.reduce("sum", y, tuple(range(2, rank + 2)), keepdim=False)
    kind = f"{'depthwise_' if depthwise else ''}conv{rank}d"
    return b.done(y, 1, "convolution", kind, "batch_size", "convolution")


def pooling(rng: Random) -> Drawn:
    b = Builder(rng)
    rank = rng.choice((1, 2, 2))
    batch, channels = b.size("batch_size", "batch"), b.size("channels", "channels")
    names = (("length", "length"),) if rank == 1 else (("height", "space"), ("width", "space"))
    x = b.input("x", batch, channels, *(b.size(name, role) for name, role in names))
    before = rng.choice(("", "relu", "tanh", "square", "abs", "softplus", "silu"))
    x = b.unary(before, x) if before else x
    op = f"{rng.choice(('max', 'avg'))}_pool{rank}d"
    y = b.pool(op, x, rng.choice((2, 2, 3, 4)))
    after = rng.choice(("", "activation", "scale", "shift"))
    if after == "activation":
        y = b.activation(y)
    elif after:
        y = b.unary("mul_scalar" if after == "scale" else "add_scalar", y)
    return b.done(y, 1, "pooling", op, "batch_size", "pooling")


def scan(rng: Random) -> Drawn:
    b = Builder(rng)
    x = tensor(b, "x", (2, 2, 3))
    dim = rng.choice((-1, 1))
    kind = rng.choice(("cumsum", "reverse", "logcumsumexp", "running_mean", "difference", "exclusive", "gated"))
    if kind == "reverse":
        y = b.along("flip", b.along("cumsum", b.along("flip", x, dim), dim), dim)
    elif kind == "difference":
        y = b.binary("sub", x, b.add("roll", (x,), b.shape(x), shifts=rng.choice((1, 2)), dim=dim))
    elif kind == "exclusive":
        y = b.binary("sub", b.along("cumsum", x, dim, name="running"), x)
    elif kind == "gated":
        y = b.along("cumsum", b.binary("mul", x, b.unary(rng.choice(("sigmoid", "tanh")), x, "gate")), dim)
    elif kind == "running_mean":
        y = b.unary("mul_scalar", b.along("cumsum", x, dim))
    else:
        y = b.along(kind, x, dim)
    if rng.random() < 0.5:
        y = b.activation(y)
    return b.done(y, 1, "scan", kind, "batch_size", "scan")


def loss(rng: Random) -> Drawn:
    b = Builder(rng)
    batch, width = b.size("batch_size", "batch"), b.size("width", "width")
    op = rng.choice(("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "bce_loss", "cosine", "pairwise",
                     "cross_entropy", "written_kl", "hinge", "log_cosh", "charbonnier"))  # fmt: skip
    x = b.input("predictions", batch, width)
    if op == "cross_entropy":
        y = b.input("targets", batch, draw="randint:width")
        z = b.add(op, (x, y), ())
        return b.done(z, 1, "loss", op, "batch_size", "loss", "reduction")
    y = b.input("targets", batch, width, draw="rand" if op == "bce_loss" else "randn")
    if rng.random() < 0.5 and op not in ("bce_loss",):
        x = b.activation(x, ("tanh", "sigmoid", "softplus", "gelu", "silu"))
    if op in ("cosine", "pairwise"):
        z = b.add(op, (x, y), (batch,), dim=-1)
        return b.done(z, 1, "loss", op, "batch_size", "loss", "reduction")
    if op in ("written_kl", "hinge", "log_cosh", "charbonnier"):
        if op == "written_kl":
            p = b.along("log_softmax", x, name="log_p")
            q = b.along("log_softmax", y, name="log_q")
            exponentials = b.add("exp", (q,), (batch, width), name="q")
            terms = b.binary("mul", exponentials, b.binary("sub", q, p, "difference"), "terms")
        elif op == "hinge":
            margin = b.unary("rsub_scalar", b.binary("mul", x, b.unary("tanh", y, "signs")), "margin")
            terms = b.unary(rng.choice(("relu", "softplus")), margin, "terms")
        else:
            difference = b.binary("sub", x, y, "difference")
            raised = b.add("add_scalar", (b.unary("square", difference),), (batch, width), value=0.001, span=POSITIVE)
            terms = b.unary("sqrt" if op == "charbonnier" else "log", raised, "terms")
        z = b.reduce("sum", terms, -1, keepdim=False)
        z = z if rng.random() < 0.5 else b.reduce("mean", z, 0, keepdim=False)
        return b.done(z, 1, "loss", op, "batch_size", "loss", "reduction")
    beta = {"beta": rng.choice((0.5, 1.0, 2.0))} if op in ("smooth_l1_loss", "huber_loss") else {}
    return b.done(b.add(op, (x, y), (), **beta), 1, "loss", op, "batch_size", "loss", "reduction")


def indexing(rng: Random) -> Drawn:
    b = Builder(rng)
    batch, width = b.size("batch_size", "batch"), b.size("width", "width")
    kind = rng.choice(("gather", "select", "embedding", "roll", "where", "tril", "cat", "flip"))
    if kind == "embedding":
        del b.roles["width"]
        b.size("vocabulary", "vocabulary", True)
        b.size("features", "features", True)
        places = b.input("places", batch, draw="randint:vocabulary")
        x = b.module("embedding", "embedding", "Embedding(vocabulary, features)", (places,), (batch, "features"))
    elif kind in ("gather", "select"):
        x = b.input("x", batch, width)
        picked = b.input("places", *((batch, width) if kind == "gather" else (batch,)),
                         draw=f"randint:{'width' if kind == 'gather' else 'batch_size'}")  # fmt: skip
        op, dim = ("gather", 1) if kind == "gather" else ("index_select", 0)
        x = b.add(op, (x, picked), (batch, width), dim=dim)
    elif kind == "where":
        x = b.input("x", batch, width)
        other = b.activation(x, ("tanh", "silu", "softplus"), "other")
        x = b.add("where", (x, b.unary("mul_scalar", x, "scaled"), other), b.shape(x), threshold=0.0)
    elif kind == "tril":
        b.roles["batch_size"] = "batch"
        x = b.input("x", batch, b.size("size", "length"), "size")
        del b.roles["width"]
        x = b.add(rng.choice(("tril", "triu")), (x,), b.shape(x))
    elif kind == "cat":
        x, y = b.input("x", batch, width), b.input("y", batch, width)
        x = b.add("cat", (b.activation(x), b.activation(y)), (batch, "(2 * width)"), dim=1)
    else:
        x = b.input("x", batch, width)
        more = {"shifts": rng.choice((1, 3))} if kind == "roll" else {}
        x = b.add(kind, (x,), b.shape(x), dim=1, **more)
    y = b.activation(x) if rng.random() < 0.6 else b.unary("mul_scalar", x)
    if kind not in ("cat", "tril") and rng.random() < 0.4:
        y = b.reduce(rng.choice(("sum", "mean", "amax", "logsumexp")), y, -1, keepdim=False)
    return b.done(y, 1, "indexing", kind, "batch_size", "indexing")


FAMILIES = {
    "unary": (unary, 16),
    "binary": (binary, 16),
    "reduction": (reduction, 18),
    "normalisation": (normalisation, 16),
    "product": (product, 14),
    "convolution": (convolution, 10),
    "pooling": (pooling, 8),
    "scan": (scan, 7),
    "loss": (loss, 8),
    "indexing": (indexing, 7),
}

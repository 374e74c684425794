"""The parts that families share: inputs in several layouts, chains of element-wise operators, norms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from evaluators.generator.builder import Builder
from evaluators.generator.graph import POSITIVE, Node, Size

LAYOUTS_2D = ("", "", "", "transposed")
LAYOUTS_4D = ("", "", "", "channels_last")
SMOOTH = ("tanh", "silu", "gelu", "gelu_tanh", "softplus", "mish", "elu", "selu", "celu", "hardswish", "softsign")
GATES = ("sigmoid", "hardsigmoid", "tanh")


def draw_dtype(rng: Random) -> str:
    """Single precision, or seldom a half precision."""
    return rng.choices(("float32", "bfloat16", "float16"), (22, 2, 1))[0]


def batch(b: Builder) -> Size:
    return b.size("batch_size", "batch")


def rows(b: Builder, name: str = "x", width: str = "features", role: str = "features", init: bool = False) -> int:
    """An input of [batch_size, width]."""
    return b.input(name, batch(b), b.size(width, role, init))


def image(b: Builder, name: str = "x", init: bool = True, layout: str = "") -> int:
    """An input of [batch_size, in_channels, height, width]."""
    shape = (batch(b), b.size("in_channels", "channels", init), b.size("height", "space"), b.size("width", "space"))
    return b.input(name, *shape, layout=layout)


def signal(b: Builder, name: str = "x", init: bool = True) -> int:
    """An input of [batch_size, in_channels, length]."""
    return b.input(name, batch(b), b.size("in_channels", "channels", init), b.size("length", "length"))


def weight_like(b: Builder, x: int, name: str, is_image: bool, around: str = "randn") -> int:
    """A weight that broadcasts over `x`: for each channel of an image, else for each feature."""
    shape = b.shape(x)
    own = (shape[1], *("1" for _ in shape[2:])) if is_image else shape[-1:]
    if not own or any(b.roles.get(size) == "batch" for size in own):  # weights do not depend on the batch
        own = ("1",)
    return b.parameter(name, *own, around=around)


def link(b: Builder, x: int, is_image: bool, earlier: Sequence[int]) -> int:
    """One drawn element-wise step on `x`. `earlier`: values of the same shape, for sums and gates."""
    rng = b.rng
    kind = rng.choices(
        ("activation", "scale", "shift", "weight", "bias", "clamp", "gate", "self_gate", "residual", "extreme",
         "square", "quotient", "roundtrip"),
        (26, 10, 8, 7, 9, 5, 6, 5, 10, 4, 3, 4, 3),
    )[0]  # fmt: skip
    same = [value for value in earlier if b.shape(value) == b.shape(x) and value != x]
    if kind == "activation":
        return b.activation(x)
    if kind == "scale":
        return b.unary(rng.choice(("mul_scalar", "div_scalar")), x)
    if kind == "shift":
        return b.unary(rng.choice(("add_scalar", "sub_scalar")), x)
    if kind == "weight":
        return b.binary("mul", x, weight_like(b, x, "scale", is_image, "one"))
    if kind == "bias":
        return b.binary(rng.choice(("add", "sub")), x, weight_like(b, x, "shift", is_image))
    if kind == "clamp":
        return b.unary(rng.choice(("clamp", "clamp_min")), x)
    if kind in ("gate", "residual", "extreme") and same:
        other = rng.choice(same)
        if kind == "residual":
            return b.binary(rng.choice(("add", "add", "sub", "mul")), x, other)
        if kind == "extreme":
            return b.binary(rng.choice(("maximum", "minimum")), x, other)
        gate = b.activation(other, GATES, "gate")
        return b.binary("mul", x, gate)
    if kind in ("self_gate", "gate"):
        gate = b.activation(x, ("sigmoid", "tanh", "hardsigmoid", "softsign"), "gate")
        return b.binary("mul", x, gate)
    if kind == "square":
        return b.unary("log1p", b.positive(rng.choice(("abs", "square")), x))
    if kind == "quotient":
        return b.binary("div", x, b.positive(rng.choice(("abs", "square")), x))
    return b.unary("sqrt", b.positive("abs", x))


def chain(b: Builder, x: int, length: int, is_image: bool = False, earlier: Sequence[int] = ()) -> int:
    """A drawn chain of `length` element-wise steps."""
    known = [*earlier, x]
    previous = ""
    for _ in range(length):
        for _ in range(6):  # another step if it repeats the one before, which often does nothing
            count = len(b.nodes)
            y = link(b, x, is_image, known)
            op = b.nodes[y].op
            if op != previous and not (b.nodes[x].span == POSITIVE and op in ("relu", "abs")):
                break
            del b.nodes[count:]
        previous = b.nodes[y].op
        known.append(x)
        x = y
    return x


def norm(b: Builder, x: int, is_image: bool = False) -> int:
    """A drawn normalisation."""
    rng = b.rng
    if is_image:
        kind = rng.choice(("group", "group", "instance", "channel", "rms"))
        if kind == "group":
            return b.group_norm(x, rng.choice((2, 4)))
        if kind == "instance":
            return b.along("instance_norm", x)
        if kind == "rms":
            factor = b.unary("rsqrt", eps(b, b.reduce("mean", b.unary("square", x, "squares"), 1)), "factor")
            return b.binary("mul", x, factor)
        return b.along("normalize", x, 1)
    kind = rng.choice(("layer", "layer", "rms", "plain", "normalize", "written", "softmax"))
    if kind == "layer":
        return b.layer_norm(x)
    if kind == "rms":
        return b.rms_norm(x, scaled=rng.random() < 0.6)
    if kind == "plain":
        return b.along("plain_layer_norm", x)
    if kind == "written":
        return written_layer_norm(b, x)
    if kind == "softmax":
        return written_softmax(b, x) if rng.random() < 0.5 else b.along("softmax", x, -1)
    return b.along("normalize", x, -1)


def eps(b: Builder, x: int, value: float = 1e-05) -> int:
    """Adds a small constant to a mean of squares."""
    return b.add("add_scalar", (x,), b.shape(x), value=value, span=POSITIVE)


def written_layer_norm(b: Builder, x: int, dim: int = -1) -> int:
    """Layer normalisation without weights, one operator after the other."""
    centred = b.binary("sub", x, b.reduce("mean", x, dim, name="mean"), "centred")
    variance = b.reduce("mean", b.unary("square", centred, "squares"), dim, name="variance")
    return b.binary("div", centred, b.unary("sqrt", eps(b, variance), "deviation"))


def written_softmax(b: Builder, x: int, dim: int = -1) -> int:
    """Softmax with its maximum subtracted, one operator after the other."""
    shifted = b.binary("sub", x, b.reduce("amax", x, dim, name="largest"), "shifted")
    exponentials = b.add("exp", (shifted,), b.shape(x), name="exponentials", span=POSITIVE)
    total = b.reduce("sum", exponentials, dim, name="total")
    b.nodes[total] = _positive(b, total)
    return b.binary("div", exponentials, total)


def _positive(b: Builder, value: int) -> Node:
    return replace(b.nodes[value], span=POSITIVE)


def written_activation(b: Builder, x: int) -> int:
    """An activation written out in simpler operators."""
    kind = b.rng.choice(("silu", "mish", "gelu", "softsign", "gelu_erf", "squared_relu", "swish_scaled", "hardswish"))
    if kind == "silu":
        return b.binary("mul", x, b.unary("sigmoid", x, "gate"))
    if kind == "mish":
        return b.binary("mul", x, b.unary("tanh", b.unary("softplus", x, "gate"), "gate"))
    if kind == "softsign":
        return b.binary(
            "div", x, b.add("add_scalar", (b.unary("abs", x, "size"),), b.shape(x), value=1.0, span=POSITIVE)
        )
    if kind == "squared_relu":
        return b.unary("square", b.unary("relu", x))
    if kind == "swish_scaled":
        scaled = b.unary("mul_scalar", x, "scaled", value=1.702)
        return b.binary("mul", x, b.unary("sigmoid", scaled, "gate"))
    if kind == "hardswish":
        shifted = b.unary("add_scalar", x, "shifted", value=3.0)
        clamped = b.unary("clamp", shifted, "gate", low=0.0, high=6.0)
        return b.unary("div_scalar", b.binary("mul", x, clamped), value=6.0)
    if kind == "gelu_erf":
        inner = b.unary("erf", b.unary("div_scalar", x, "scaled", value=1.4142135623730951), "inner")
        half = b.unary("mul_scalar", x, "half", value=0.5)
        return b.binary("mul", half, b.unary("add_scalar", inner, value=1.0))
    cube = b.binary("mul", b.unary("square", x, "cube"), x, "cube")
    inner = b.binary("add", x, b.unary("mul_scalar", cube, "cube", value=0.044715), "inner")
    inner = b.unary("tanh", b.unary("mul_scalar", inner, "inner", value=0.7978845608028654), "inner")
    return b.binary("mul", b.unary("mul_scalar", x, "half", value=0.5), b.unary("add_scalar", inner, value=1.0))

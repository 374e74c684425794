"""Level 3: feed-forward, convolutional and mixing blocks."""

from __future__ import annotations

from random import Random

from evaluators.generator.builder import Builder, Drawn
from evaluators.generator.families.grammar import GATES, SMOOTH, image, norm, rows, signal, written_activation

_MLP = (*SMOOTH, "relu", "leaky_relu", "hardswish")


def act(b: Builder, x: int, name: str = "") -> int:
    """An activation, sometimes written out."""
    return written_activation(b, x) if b.rng.random() < 0.15 else b.activation(x, _MLP, name)


def row_norm(b: Builder, x: int) -> int:
    return b.layer_norm(x) if b.rng.random() < 0.6 else b.rms_norm(x)


def mlp(rng: Random) -> Drawn:
    """Linear layers with activations, norms and a residual sum."""
    b = Builder(rng)
    x = rows(b, init=True)
    hidden = b.size("hidden", "hidden", True)
    y = row_norm(b, x) if rng.random() < 0.5 else x
    for _ in range(rng.randint(1, 3)):
        y = act(b, b.linear(y, hidden, bias=rng.random() < 0.8, var="hidden"))
        y = row_norm(b, y) if rng.random() < 0.3 else y
        y = b.unary("mul_scalar", y) if rng.random() < 0.2 else y
    y = b.linear(y, "features", "output", var="y")
    y = _residual(b, x, y)
    return b.done(y, 3, "mlp", "mlp", "batch_size", "matmul", "elementwise")


def _residual(b: Builder, x: int, y: int) -> int:
    kind = b.rng.choice(("sum", "scaled", "none", "gated", "norm"))
    if kind == "scaled":
        y = b.unary("mul_scalar", y)
    if kind == "gated":
        y = b.binary("mul", y, b.parameter("residual_scale", b.shape(x)[-1], around="one"))
    if kind != "none":
        y = b.binary("add", x, y)
    return row_norm(b, y) if kind == "norm" else y


def gated_mlp(rng: Random) -> Drawn:
    """A gated linear unit between two projections."""
    b = Builder(rng)
    x = rows(b, init=True)
    hidden, bias = b.size("hidden", "hidden", True), rng.random() < 0.4
    z = row_norm(b, x) if rng.random() < 0.6 else x
    joined = rng.random() < 0.35
    if joined:
        both = b.linear(z, "(2 * hidden)", "both", bias, "both")
        shape = (*b.shape(both)[:-1], hidden)
        gate = b.view("narrow", both, shape, "gate", dim=-1, start=0, length="self.hidden")
        value = b.view("narrow", both, shape, "value", dim=-1, start="self.hidden", length="self.hidden")
    else:
        gate = b.linear(z, hidden, "gate", bias, "gate")
        value = b.linear(z, hidden, "up", bias, "value")
    y = b.binary("mul", act(b, gate, "gate"), value, "hidden")
    y = row_norm(b, y) if rng.random() < 0.25 else y
    y = b.linear(y, "features", "down", bias, "y")
    return b.done(_residual(b, x, y), 3, "gated_mlp", "gated_mlp", "batch_size", "matmul", "gating")


def conv_block(rng: Random) -> Drawn:
    """A residual block of convolutions and norms."""
    b = Builder(rng)
    x = image(b)
    kernel = rng.choice((1, 3, 3, 5))
    y = b.conv(x, "in_channels" if rng.random() < 0.5 else b.size("hidden_channels", "channels", True), kernel, 2)
    y = _image_norm(b, y)
    y = act(b, y)
    if rng.random() < 0.3:
        y = act(b, b.conv(y, b.shape(y)[1], 3, 2, groups=b.shape(y)[1], name="depthwise"))
    y = b.conv(y, "in_channels", rng.choice((1, 3)), 2, name="project")
    y = _image_norm(b, y) if rng.random() < 0.6 else y
    if rng.random() < 0.3:
        y = squeeze(b, y)
    y = b.unary("mul_scalar", y) if rng.random() < 0.2 else y
    y = b.binary("add", y, x)
    y = act(b, y) if rng.random() < 0.6 else y
    y = b.pool(rng.choice(("max_pool2d", "avg_pool2d")), y, 2) if rng.random() < 0.2 else y
    return b.done(y, 3, "conv_block", "residual_conv", "batch_size", "convolution", "normalisation")


def _image_norm(b: Builder, y: int) -> int:
    return norm(b, y, True) if b.rng.random() < 0.5 else b.group_norm(y, b.rng.choice((2, 4)))


def squeeze(b: Builder, y: int) -> int:
    """Weights the channels by a small network of their means (squeeze and excitation)."""
    channels = b.shape(y)[1]
    pooled = b.reduce("mean", y, (2, 3), keepdim=False, name="pooled")
    hidden = b.activation(b.linear(pooled, b.size("squeezed", "16", True), "squeeze", var="hidden"), ("relu", "silu"))
    gate = b.activation(b.linear(hidden, channels, "excite", var="gate"), GATES[:2], "gate")
    gate = b.view("unsqueeze", b.view("unsqueeze", gate, (*b.shape(gate), "1"), "gate", dim=-1),
                  (*b.shape(gate), "1", "1"), "gate", dim=-1)  # fmt: skip
    return b.binary("mul", y, gate)


def separable(rng: Random) -> Drawn:
    """Depthwise and pointwise convolutions with norms and activations, perhaps inverted."""
    b = Builder(rng)
    x = image(b)
    y = x
    if rng.random() < 0.5:
        y = act(b, b.conv(y, b.size("hidden_channels", "channels", True), 1, 2, name="expand"))
    y = b.conv(y, b.shape(y)[1], rng.choice((3, 5)), 2, groups=b.shape(y)[1], name="depthwise")
    y = act(b, _image_norm(b, y) if rng.random() < 0.6 else y)
    if rng.random() < 0.5:
        y = squeeze(b, y)
    y = b.conv(y, b.size("out_channels", "channels", True), 1, 2, name="pointwise")
    y = _image_norm(b, y) if rng.random() < 0.5 else y
    y = b.activation(y) if rng.random() < 0.4 else y
    return b.done(y, 3, "separable", "separable_conv", "batch_size", "convolution")


def convnet(rng: Random) -> Drawn:
    """Convolutions and pools, then a classifier on the means."""
    b = Builder(rng)
    x = image(b)
    y = act(b, b.conv(x, b.size("first_channels", "channels", True), 3, 2, name="conv"))
    y = b.pool(rng.choice(("max_pool2d", "avg_pool2d")), y, 2)
    y = b.conv(y, b.size("second_channels", "channels", True), 3, 2, name="conv")
    y = act(b, _image_norm(b, y) if rng.random() < 0.5 else y)
    y = b.reduce(rng.choice(("mean", "amax")), y, (2, 3), keepdim=False)
    if rng.random() < 0.5:
        y = act(b, b.linear(y, b.size("hidden", "hidden", True)))
    y = b.linear(y, b.size("classes", "classes", True), "classify")
    y = b.along(rng.choice(("softmax", "log_softmax")), y) if rng.random() < 0.5 else y
    return b.done(y, 3, "convnet", "convnet", "batch_size", "convolution", "matmul")


def mixer(rng: Random) -> Drawn:
    """Mixes along the sequence, then along the features."""
    b = Builder(rng)
    batch, features = b.size("batch_size", "batch"), b.size("features", "hidden", True)
    length = b.size("sequence", "sequence", True)
    x = b.input("x", batch, length, features)
    y = b.transpose(row_norm(b, x) if rng.random() < 0.7 else x, 1, 2, "mixed")
    hidden = b.size("token_hidden", "hidden", True)
    y = b.linear(act(b, b.linear(y, hidden, "token_in")), length, "token_out")
    x2 = b.binary("add", x, b.transpose(y, 1, 2), "x")
    z = row_norm(b, x2) if rng.random() < 0.7 else x2
    z = b.linear(act(b, b.linear(z, b.size("channel_hidden", "hidden", True), "channel_in", var="z")), features,
                 "channel_out", var="z")  # fmt: skip
    y = b.binary("add", x2, z)
    y = b.reduce("mean", y, 1, keepdim=False) if rng.random() < 0.3 else y
    return b.done(y, 3, "mixer", "mixer", "batch_size", "matmul", "layout")


def low_rank(rng: Random) -> Drawn:
    """A layer beside its low-rank adapter, or two experts with a soft gate."""
    b = Builder(rng)
    x = rows(b, init=True)
    if rng.random() < 0.5:
        out = b.size("out_features", "features", True)
        y = b.linear(x, out, "base", var="y")
        small = b.linear(x, b.size("rank", "16", True), "down", False, "small")
        small = b.activation(small) if rng.random() < 0.4 else small
        small = b.unary("mul_scalar", b.linear(small, out, "up", False, "small"), "small")
        y = b.binary("add", y, small)
        y = act(b, y) if rng.random() < 0.7 else row_norm(b, y)
        return b.done(y, 3, "low_rank", "low_rank_adapter", "batch_size", "matmul", "algebra")
    hidden = b.size("hidden", "hidden", True)
    weights = b.along("softmax", b.linear(x, "2", "router", var="weights"), name="weights")
    parts = []
    for index, name in enumerate(("first", "second")):
        expert = b.linear(act(b, b.linear(x, hidden, f"{name}_in", var=name)), "features", f"{name}_out", var=name)
        weight = b.view(
            "narrow", weights, (*b.shape(weights)[:-1], "1"), f"{name}_weight", dim=-1, start=index, length=1
        )
        parts.append(b.binary("mul", expert, weight, name))
    y = b.binary("add", parts[0], parts[1])
    y = b.binary("add", y, x) if rng.random() < 0.5 else y
    return b.done(y, 3, "low_rank", "soft_experts", "batch_size", "matmul", "gating")


def conv1d_block(rng: Random) -> Drawn:
    """A gated or residual block of 1D convolutions, as in sequence models."""
    b = Builder(rng)
    x = signal(b)
    kernel = rng.choice((3, 5))
    value = b.conv(x, "in_channels", kernel, 1, name="value")
    if rng.random() < 0.6:
        gate = b.conv(x, "in_channels", kernel, 1, name="gate")
        y = b.binary("mul", b.activation(value, ("tanh", "gelu", "silu", "softsign"), "value"),
                     b.activation(gate, GATES[:2], "gate"))  # fmt: skip
    else:
        y = act(b, b.group_norm(value, rng.choice((2, 4))))
    y = b.conv(y, "in_channels", 1, 1, name="project")
    y = b.binary("add", y, x)
    y = b.unary("mul_scalar", y) if rng.random() < 0.3 else y
    y = b.reduce(rng.choice(("mean", "amax")), y, -1, keepdim=False) if rng.random() < 0.3 else y
    y = act(b, y) if rng.random() < 0.3 else y
    return b.done(y, 3, "conv1d_block", "conv1d_block", "batch_size", "convolution", "gating")


FAMILIES = {
    "mlp": (mlp, 14),
    "gated_mlp": (gated_mlp, 14),
    "conv_block": (conv_block, 14),
    "separable": (separable, 10),
    "convnet": (convnet, 6),
    "mixer": (mixer, 8),
    "low_rank": (low_rank, 8),
    "conv1d_block": (conv1d_block, 8),
}

"""Element-wise operators: how each is written in torch, in place, in Triton and in C++.

In the texts `{0}`, `{1}` are the arguments; other names are the operator's constants. Triton and C++ compute in single
precision. NaN stays NaN in each, and infinities are treated as torch treats them.
"""

from __future__ import annotations

from dataclasses import dataclass

from evaluators.generator.graph import ANY, BOUNDED, POSITIVE


@dataclass(frozen=True)
class Elementwise:
    """`in_place`: empty if there is none. `span`: of its values (`same`: as its argument's). `weight`: how many times
    the work of an addition it takes on a CPU. `needs`: the range that its argument must have."""

    torch: str
    in_place: str
    triton: str
    cpp: str
    weight: float = 1.0
    span: str = ANY
    needs: str = ANY


def _unary(function: str, triton: str, cpp: str, **more: object) -> Elementwise:
    """A function of torch whose in-place method has the same name."""
    return Elementwise(f"torch.{function}({{0}})", f"{{0}}.{function}_()", triton, cpp, **more)  # type: ignore[arg-type]


_SIGMOID = ("tl.sigmoid({0})", "1.0f / (1.0f + std::exp(-{0}))")

UNARY: dict[str, Elementwise] = {
    "relu": _unary("relu", "tl.where({0} < 0, 0.0, {0})", "{0} < 0.0f ? 0.0f : {0}"),
    "sigmoid": _unary("sigmoid", *_SIGMOID, weight=4, span=POSITIVE),
    "tanh": _unary("tanh", "tanh({0})", "std::tanh({0})", weight=5, span=BOUNDED),
    "abs": _unary("abs", "tl.abs({0})", "std::fabs({0})"),
    "neg": _unary("neg", "-{0}", "-{0}"),
    "square": _unary("square", "{0} * {0}", "{0} * {0}"),
    "sin": _unary("sin", "tl.sin({0})", "std::sin({0})", weight=8, span=BOUNDED),
    "cos": _unary("cos", "tl.cos({0})", "std::cos({0})", weight=8, span=BOUNDED),
    "erf": _unary("erf", "tl.erf({0})", "std::erf({0})", weight=6, span=BOUNDED),
    "exp": _unary("exp", "tl.exp({0})", "std::exp({0})", weight=4, span=POSITIVE, needs=BOUNDED),
    "expm1": _unary("expm1", "tl.exp({0}) - 1.0", "std::exp({0}) - 1.0f", weight=6, needs=BOUNDED),
    "sqrt": _unary("sqrt", "tl.sqrt({0})", "std::sqrt({0})", weight=2, span=POSITIVE, needs=POSITIVE),
    "rsqrt": _unary("rsqrt", "1.0 / tl.sqrt({0})", "1.0f / std::sqrt({0})", weight=3, span=POSITIVE, needs=POSITIVE),
    "reciprocal": _unary("reciprocal", "1.0 / {0}", "1.0f / {0}", weight=2, span=POSITIVE, needs=POSITIVE),
    "log": _unary("log", "tl.log({0})", "std::log({0})", weight=4, needs=POSITIVE),
    "log1p": _unary("log1p", "tl.log(1.0 + {0})", "std::log(1.0f + {0})", weight=5, needs=POSITIVE),
    "silu": Elementwise(
        "F.silu({0})",
        "F.silu({0}, inplace=True)",
        "{0} * tl.sigmoid({0})",
        "{0} / (1.0f + std::exp(-{0}))",
        weight=5,
    ),
    "gelu": Elementwise(
        "F.gelu({0})",
        "",
        "0.5 * {0} * (1.0 + tl.erf({0} * 0.7071067811865476))",
        "0.5f * {0} * (1.0f + std::erf({0} * 0.7071067811865476f))",
        weight=8,
    ),
    "gelu_tanh": Elementwise(
        'F.gelu({0}, approximate="tanh")',
        "",
        "{0} * tl.sigmoid(1.5957691216057308 * ({0} + 0.044715 * {0} * {0} * {0}))",
        "{0} / (1.0f + std::exp(-1.5957691216057308f * ({0} + 0.044715f * {0} * {0} * {0})))",
        weight=6,
    ),
    "softplus": Elementwise(
        "F.softplus({0})",
        "",
        "tl.where({0} > 20.0, {0}, tl.log(1.0 + tl.exp({0})))",
        "{0} > 20.0f ? {0} : std::log(1.0f + std::exp(std::fmin({0}, 20.0f)))",
        weight=12,
        span=POSITIVE,
    ),
    "mish": Elementwise(
        "F.mish({0})",
        "F.mish({0}, inplace=True)",
        "{0} * tanh(tl.where({0} > 20.0, {0}, tl.log(1.0 + tl.exp({0}))))",
        "{0} * std::tanh({0} > 20.0f ? {0} : std::log(1.0f + std::exp(std::fmin({0}, 20.0f))))",
        weight=18,
    ),
    "elu": Elementwise(
        "F.elu({0}, alpha={alpha})",
        "F.elu({0}, alpha={alpha}, inplace=True)",
        "tl.where({0} > 0, {0}, {alpha} * (tl.exp({0}) - 1.0))",
        "{0} > 0.0f ? {0} : {alpha}f * (std::exp({0}) - 1.0f)",
        weight=5,
    ),
    "selu": Elementwise(
        "F.selu({0})",
        "F.selu({0}, inplace=True)",
        "1.0507009873554805 * tl.where({0} > 0, {0}, 1.6732632423543772 * (tl.exp({0}) - 1.0))",
        "1.0507009873554805f * ({0} > 0.0f ? {0} : 1.6732632423543772f * (std::exp({0}) - 1.0f))",
        weight=5,
    ),
    "celu": Elementwise(
        "F.celu({0}, alpha={alpha})",
        "F.celu({0}, alpha={alpha}, inplace=True)",
        "tl.where({0} > 0, {0}, {alpha} * (tl.exp({0} / {alpha}) - 1.0))",
        "{0} > 0.0f ? {0} : {alpha}f * (std::exp({0} / {alpha}f) - 1.0f)",
        weight=5,
    ),
    "leaky_relu": Elementwise(
        "F.leaky_relu({0}, negative_slope={slope})",
        "F.leaky_relu({0}, negative_slope={slope}, inplace=True)",
        "tl.where({0} > 0, {0}, {slope} * {0})",
        "{0} > 0.0f ? {0} : {slope}f * {0}",
    ),
    "hardswish": Elementwise(
        "F.hardswish({0})",
        "F.hardswish({0}, inplace=True)",
        "{0} * tl.minimum(tl.maximum({0} + 3.0, 0.0), 6.0) * 0.16666666666666666",
        "{0} * std::fmin(std::fmax({0} + 3.0f, 0.0f), 6.0f) * 0.16666666666666666f",
    ),
    "hardsigmoid": Elementwise(
        "F.hardsigmoid({0})",
        "F.hardsigmoid({0}, inplace=True)",
        "tl.minimum(tl.maximum({0} + 3.0, 0.0), 6.0) * 0.16666666666666666",
        "std::fmin(std::fmax({0} + 3.0f, 0.0f), 6.0f) * 0.16666666666666666f",
        span=BOUNDED,
    ),
    "relu6": Elementwise(
        "F.relu6({0})",
        "F.relu6({0}, inplace=True)",
        "tl.minimum(tl.maximum({0}, 0.0), 6.0)",
        "std::fmin(std::fmax({0}, 0.0f), 6.0f)",
        span=BOUNDED,
    ),
    "clamp": Elementwise(
        "torch.clamp({0}, min={low}, max={high})",
        "{0}.clamp_(min={low}, max={high})",
        "tl.minimum(tl.maximum({0}, {low}), {high})",
        "std::fmin(std::fmax({0}, {low}f), {high}f)",
        span=BOUNDED,
    ),
    "clamp_min": Elementwise(
        "torch.clamp({0}, min={low})",
        "{0}.clamp_(min={low})",
        "tl.maximum({0}, {low})",
        "std::fmax({0}, {low}f)",
    ),
    "softsign": Elementwise(
        "F.softsign({0})",
        "",
        "{0} / (1.0 + tl.abs({0}))",
        "{0} / (1.0f + std::fabs({0}))",
        weight=3,
        span=BOUNDED,
    ),
    "logsigmoid": Elementwise(
        "F.logsigmoid({0})",
        "",
        "tl.minimum({0}, 0.0) - tl.log(1.0 + tl.exp(-tl.abs({0})))",
        "std::fmin({0}, 0.0f) - std::log(1.0f + std::exp(-std::fabs({0})))",
        weight=12,
    ),
    "softshrink": Elementwise(
        "F.softshrink({0}, lambd={width})",
        "",
        "tl.where({0} > {width}, {0} - {width}, tl.where({0} < -{width}, {0} + {width}, 0.0))",
        "{0} > {width}f ? {0} - {width}f : ({0} < -{width}f ? {0} + {width}f : 0.0f)",
    ),
    "add_scalar": Elementwise("{0} + {value}", "{0}.add_({value})", "{0} + {value}", "{0} + {value}f"),
    "sub_scalar": Elementwise("{0} - {value}", "{0}.sub_({value})", "{0} - {value}", "{0} - {value}f"),
    "mul_scalar": Elementwise("{0} * {value}", "{0}.mul_({value})", "{0} * {value}", "{0} * {value}f", span="same"),
    "div_scalar": Elementwise("{0} / {value}", "{0}.div_({value})", "{0} / {value}", "{0} / {value}f", span="same"),
    "rsub_scalar": Elementwise("{value} - {0}", "", "{value} - {0}", "{value}f - {0}"),
    "rdiv_scalar": Elementwise(
        "{value} / {0}", "", "{value} / {0}", "{value}f / {0}", weight=2, span=POSITIVE, needs=POSITIVE
    ),
    "neg_exp": Elementwise("torch.exp(-{0})", "", "tl.exp(-{0})", "std::exp(-{0})", weight=5, needs=POSITIVE),
}

BINARY: dict[str, Elementwise] = {
    "add": Elementwise("{0} + {1}", "{0}.add_({1})", "{0} + {1}", "{0} + {1}"),
    "sub": Elementwise("{0} - {1}", "{0}.sub_({1})", "{0} - {1}", "{0} - {1}"),
    "mul": Elementwise("{0} * {1}", "{0}.mul_({1})", "{0} * {1}", "{0} * {1}"),
    "div": Elementwise("{0} / {1}", "{0}.div_({1})", "{0} / {1}", "{0} / {1}", weight=2, needs=POSITIVE),
    "maximum": Elementwise("torch.maximum({0}, {1})", "", "tl.where({0} < {1}, {1}, {0})", "{0} < {1} ? {1} : {0}"),
    "minimum": Elementwise("torch.minimum({0}, {1})", "", "tl.where({0} > {1}, {1}, {0})", "{0} > {1} ? {1} : {0}"),
}

TERNARY: dict[str, Elementwise] = {
    "lerp": Elementwise(
        "torch.lerp({0}, {1}, {2})", "", "{0} + {2} * ({1} - {0})", "{0} + {2} * ({1} - {0})", weight=2
    ),
    "addcmul": Elementwise("torch.addcmul({0}, {1}, {2})", "", "{0} + {1} * {2}", "{0} + {1} * {2}"),
    "add_scaled": Elementwise("torch.add({0}, {1}, alpha={value})", "", "{0} + {value} * {1}", "{0} + {value}f * {1}"),
}

ELEMENTWISE = {**UNARY, **BINARY, **TERNARY}

ACTIVATIONS = (
    "relu", "sigmoid", "tanh", "silu", "gelu", "gelu_tanh", "softplus", "mish", "elu", "selu", "celu", "leaky_relu",
    "hardswish", "hardsigmoid", "relu6", "softsign", "logsigmoid", "softshrink", "erf", "sin", "cos",
)  # fmt: skip

CONSTANTS: dict[str, dict[str, tuple[float, ...]]] = {
    "elu": {"alpha": (0.5, 1.0, 1.5)},
    "celu": {"alpha": (0.5, 1.5, 2.0)},
    "leaky_relu": {"slope": (0.01, 0.05, 0.1, 0.2)},
    "softshrink": {"width": (0.25, 0.5)},
    "clamp": {"low": (-2.0, -1.0, -0.5), "high": (1.0, 2.0, 3.0)},
    "clamp_min": {"low": (-1.0, -0.5, 0.0)},
    "add_scalar": {"value": (0.1, 0.25, 0.5, 1.0, 2.0)},
    "sub_scalar": {"value": (0.1, 0.25, 0.5, 1.0)},
    "mul_scalar": {"value": (0.1, 0.25, 0.5, 1.5, 2.0, 3.0)},
    "div_scalar": {"value": (1.5, 2.0, 3.0, 4.0)},
    "rsub_scalar": {"value": (1.0, 2.0)},
    "rdiv_scalar": {"value": (1.0, 2.0)},
    "add_scaled": {"value": (0.5, 2.0)},
}
"""The values that each constant is drawn from."""

"""Operators that are not element-wise: their text in torch, the name of their result, and the kind of their work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from evaluators.generator.elementwise import BINARY, ELEMENTWISE
from evaluators.generator.graph import Node


@dataclass(frozen=True)
class Operator:
    """`text`: with `{0}`, `{1}` for the arguments and names for attributes. `variable`: what its result is called.
    `kind`: `view`, `reduction`, `row`, `product`, `conv`, `pool`, `scan`, `loss`, `index` or `mask`. `words`: in a
    description."""

    text: str
    kind: str
    variable: str = "x"
    words: str = ""


_REDUCED = "dim={dim}, keepdim={keepdim})"

OPERATORS: dict[str, Operator] = {
    # reductions over one axis or several
    "sum": Operator(f"torch.sum({{0}}, {_REDUCED}", "reduction", "total", "a sum"),
    "mean": Operator(f"torch.mean({{0}}, {_REDUCED}", "reduction", "mean", "a mean"),
    "amax": Operator(f"torch.amax({{0}}, {_REDUCED}", "reduction", "largest", "a maximum"),
    "amin": Operator(f"torch.amin({{0}}, {_REDUCED}", "reduction", "smallest", "a minimum"),
    "var": Operator(f"torch.var({{0}}, {_REDUCED}", "reduction", "variance", "a variance"),
    "std": Operator(f"torch.std({{0}}, {_REDUCED}", "reduction", "deviation", "a standard deviation"),
    "logsumexp": Operator(f"torch.logsumexp({{0}}, {_REDUCED}", "reduction", "total", "a log-sum-exp"),
    "norm": Operator(f"torch.linalg.vector_norm({{0}}, {_REDUCED}", "reduction", "length", "a Euclidean norm"),
    "norm1": Operator(f"torch.linalg.vector_norm({{0}}, ord=1, {_REDUCED}", "reduction", "length", "an L1 norm"),
    "argmax": Operator("torch.argmax({0}, dim={dim})", "reduction", "places", "an argmax"),
    "argmin": Operator("torch.argmin({0}, dim={dim})", "reduction", "places", "an argmin"),
    # along an axis, shape kept
    "softmax": Operator("torch.softmax({0}, dim={dim})", "row", "weights", "softmax"),
    "log_softmax": Operator("torch.log_softmax({0}, dim={dim})", "row", "scores", "log-softmax"),
    "softmin": Operator("F.softmin({0}, dim={dim})", "row", "weights", "softmin"),
    "normalize": Operator("F.normalize({0}, dim={dim})", "row", "x", "L2 normalisation"),
    "plain_layer_norm": Operator("F.layer_norm({0}, {0}.shape[-1:])", "row", "x", "layer normalisation"),
    "layer_norm": Operator("self.{module}({0})", "row", "x", "layer normalisation"),
    "layer_norm_call": Operator(
        "F.layer_norm({0}, {0}.shape[-1:], {1}, {2}, {eps})", "row", "x", "layer normalisation"
    ),
    "rms_norm_call": Operator("F.rms_norm({0}, {0}.shape[-1:], {1}, {eps})", "row", "x", "RMS normalisation"),
    "plain_rms_norm": Operator("F.rms_norm({0}, {0}.shape[-1:], eps={eps})", "row", "x", "RMS normalisation"),
    "group_norm": Operator("self.{module}({0})", "row", "x", "group normalisation"),
    "instance_norm": Operator("F.instance_norm({0})", "row", "x", "instance normalisation"),
    "glu": Operator("F.glu({0}, dim={dim})", "row", "x", "a gated linear unit"),
    "cumsum": Operator("torch.cumsum({0}, dim={dim})", "scan", "x", "a cumulative sum"),
    "logcumsumexp": Operator("torch.logcumsumexp({0}, dim={dim})", "scan", "x", "a cumulative log-sum-exp"),
    "flip": Operator("torch.flip({0}, dims=({dim},))", "index", "x", "a reversed axis"),
    "roll": Operator("torch.roll({0}, shifts={shifts}, dims={dim})", "index", "shifted", "a rolled axis"),
    "tril": Operator("torch.tril({0})", "index", "lower", "a lower triangle"),
    "diag": Operator("torch.diag({0})", "index", "diagonal", "a diagonal matrix"),
    "triu": Operator("torch.triu({0})", "index", "upper", "an upper triangle"),
    "gather": Operator("torch.gather({0}, {dim}, {1})", "index", "x", "a gather"),
    "index_select": Operator("torch.index_select({0}, {dim}, {1})", "index", "x", "selected rows"),
    "embedding": Operator("self.{module}({0})", "index", "x", "an embedding"),
    "cat": Operator("torch.cat([{0}, {1}], dim={dim})", "index", "joined", "a concatenation"),
    "repeat_heads": Operator("{0}.repeat_interleave(self.{groups}, dim=1)", "index", "x", "shared heads"),
    # products
    "linear": Operator("self.{module}({0})", "product", "x", "a linear layer"),
    "linear_call": Operator("F.linear({0}, {1}, {2})", "product", "x", "a linear layer"),
    "linear_no_bias": Operator("F.linear({0}, {1})", "product", "x", "a linear layer"),
    "matmul": Operator("torch.matmul({0}, {1})", "product", "product", "a matrix product"),
    "bmm": Operator("torch.bmm({0}, {1})", "product", "product", "a batched matrix product"),
    "addmm": Operator("torch.addmm({0}, {1}, {2}, beta={beta}, alpha={alpha})", "product", "x", "a matrix product"),
    "baddbmm": Operator("torch.baddbmm({0}, {1}, {2}, beta={beta}, alpha={alpha})", "product", "x", "a matrix product"),
    "mv": Operator("torch.matmul({0}, {1})", "product", "x", "a matrix-vector product"),
    "outer": Operator("torch.outer({0}, {1})", "product", "product", "an outer product"),
    "sdpa": Operator(
        "F.scaled_dot_product_attention({0}, {1}, {2}, is_causal={causal})", "product", "attended", "attention"
    ),
    # convolutions and pools
    "conv1d": Operator("self.{module}({0})", "conv", "x", "a 1D convolution"),
    "conv2d": Operator("self.{module}({0})", "conv", "x", "a 2D convolution"),
    "conv3d": Operator("self.{module}({0})", "conv", "x", "a 3D convolution"),
    "conv_transpose1d": Operator("self.{module}({0})", "conv", "x", "a transposed 1D convolution"),
    "conv_transpose2d": Operator("self.{module}({0})", "conv", "x", "a transposed 2D convolution"),
    "max_pool1d": Operator("F.max_pool1d({0}, kernel_size={kernel})", "pool", "x", "max pooling"),
    "max_pool2d": Operator("F.max_pool2d({0}, kernel_size={kernel})", "pool", "x", "max pooling"),
    "avg_pool1d": Operator("F.avg_pool1d({0}, kernel_size={kernel})", "pool", "x", "average pooling"),
    "avg_pool2d": Operator("F.avg_pool2d({0}, kernel_size={kernel})", "pool", "x", "average pooling"),
    "upsample": Operator('F.interpolate({0}, scale_factor=2, mode="nearest")', "pool", "x", "upsampling"),
    # views
    "transpose": Operator("{0}.transpose({first}, {second})", "view", "x", "a transpose"),
    "unsqueeze": Operator("{0}.unsqueeze({dim})", "view", "x", ""),
    "squeeze": Operator("{0}.squeeze({dim})", "view", "x", ""),
    "flatten": Operator("{0}.flatten({start}, {end})", "view", "x", "flattening"),
    "unflatten": Operator("{0}.unflatten({dim}, ({sizes}))", "view", "x", ""),
    "select": Operator("{0}.select({dim}, {index})", "view", "x", ""),
    "step": Operator("{0}[{index}]", "view", "x", "every second element"),
    "narrow": Operator("{0}.narrow({dim}, {start}, {length})", "view", "part", ""),
    "contiguous": Operator("{0}.contiguous()", "index", "x", ""),
    "weight_of": Operator("self.{of}.weight", "view", "weight", ""),
    "bias_of": Operator("self.{of}.bias", "view", "bias", ""),
    # masks and losses
    "causal_mask": Operator(
        "torch.ones({0}.shape[-2:], dtype=torch.bool, device={0}.device).triu(1)", "mask", "mask", ""
    ),
    "masked_fill": Operator('{0}.masked_fill({1}, float("-inf"))', "mask", "scores", "a causal mask"),
    "where": Operator("torch.where({0} > {threshold}, {1}, {2})", "mask", "x", "a selection"),
    "mse_loss": Operator("F.mse_loss({0}, {1})", "loss", "loss", "a squared error"),
    "l1_loss": Operator("F.l1_loss({0}, {1})", "loss", "loss", "an absolute error"),
    "smooth_l1_loss": Operator("F.smooth_l1_loss({0}, {1}, beta={beta})", "loss", "loss", "a smooth L1 loss"),
    "huber_loss": Operator("F.huber_loss({0}, {1}, delta={beta})", "loss", "loss", "a Huber loss"),
    "soft_margin_loss": Operator("F.soft_margin_loss({0}, {1})", "loss", "loss", "a soft margin loss"),
    "cross_entropy": Operator("F.cross_entropy({0}, {1})", "loss", "loss", "a cross entropy"),
    "bce_loss": Operator("F.binary_cross_entropy_with_logits({0}, {1})", "loss", "loss", "a binary cross entropy"),
    "cosine": Operator("F.cosine_similarity({0}, {1}, dim={dim})", "reduction", "similarity", "a cosine similarity"),
    "pairwise": Operator("F.pairwise_distance({0}, {1})", "reduction", "distance", "a pairwise distance"),
}


def text_of(node: Node, arguments: list[str]) -> str:
    """The expression of a node in torch."""
    attrs: Mapping[str, object] = {**node.attrs, "module": node.module}
    if node.op == "call":  # a function or kernel of the program's own
        return str(node.attrs["text"]).format(*arguments)
    template = ELEMENTWISE[node.op].torch if node.op in ELEMENTWISE else OPERATORS[node.op].text
    if node.attrs.get("in_place"):
        template = ELEMENTWISE[node.op].in_place
    return template.format(*arguments, **attrs).replace(", keepdim=False", "")


def variable_of(node: Node) -> str:
    """What the result of a node is called if it has no name of its own."""
    return OPERATORS[node.op].variable if node.op in OPERATORS else "x"


def is_view(node: Node) -> bool:
    """Whether the result shares the memory of the node's first argument."""
    return node.op in OPERATORS and OPERATORS[node.op].kind == "view"


def words_of(node: Node) -> str:
    """The operator in a description; empty for what a reader does not need."""
    if node.op in OPERATORS:
        return OPERATORS[node.op].words
    names = {"add": "a sum of two tensors", "sub": "a difference", "mul": "a product", "div": "a quotient"}
    if node.op in BINARY:
        return names.get(node.op, node.op.replace("_", " "))
    return {
        "mul_scalar": "scaling",
        "div_scalar": "scaling",
        "add_scalar": "a shift",
        "sub_scalar": "a shift",
        "rsub_scalar": "a difference",
        "rdiv_scalar": "a quotient",
        "relu": "ReLU",
        "relu6": "ReLU6",
        "gelu": "GELU",
        "gelu_tanh": "GELU (tanh)",
        "silu": "SiLU",
        "elu": "ELU",
        "selu": "SELU",
        "celu": "CELU",
        "mish": "Mish",
        "leaky_relu": "leaky ReLU",
        "clamp": "clamping",
        "clamp_min": "clamping",
    }.get(node.op, node.op.replace("_", " "))

"""Level 3: attention and its variants, and transformer blocks."""

from __future__ import annotations

from random import Random

from evaluators.generator.builder import Builder, Drawn
from evaluators.generator.families.blocks import act, row_norm


def split(b: Builder, x: int, name: str) -> int:
    """[batch, sequence, heads * head_dim] to [batch, heads, sequence, head_dim]."""
    batch, length, _ = b.shape(x)
    shape = (batch, length, "heads", "head_dim")
    y = b.view("unflatten", x, shape, name, dim=-1, sizes="self.heads, self.head_dim")
    return b.transpose(y, 1, 2, name)


def merge(b: Builder, x: int) -> int:
    """The inverse of `split`."""
    y = b.transpose(x, 1, 2, "merged")
    batch, length, _, _ = b.shape(y)
    return b.add("flatten", (y,), (batch, length, "(heads * head_dim)"), start=2, end=3, name="merged", dtype=b.dtype)


def attend(b: Builder, query: int, key: int, value: int, kind: str) -> int:
    """Attention on heads, written out."""
    rng = b.rng
    if kind == "linear":
        query, key = (b.unary("add_scalar", b.unary("elu", part, name, alpha=1.0), name, value=1.0) for part, name in
                      ((query, "query"), (key, "key")))  # fmt: skip
        summary = b.matmul(b.transpose(key, name="key"), value, "summary")
        return b.matmul(query, summary, "attended")
    if kind == "cosine":
        query, key = b.along("normalize", query, name="query"), b.along("normalize", key, name="key")
    scores = b.matmul(query, b.transpose(key, name="key"), "scores")
    if kind == "cosine":
        scores = b.unary("mul_scalar", scores, "scores", value=rng.choice((4.0, 8.0)))
    else:
        scores = b.add("mul_scalar", (scores,), b.shape(scores), value="self.head_dim ** -0.5", name="scores")
    if kind == "capped":
        cap = rng.choice((5.0, 10.0, 30.0))
        scores = b.unary("div_scalar", scores, "scores", value=cap)
        scores = b.unary("mul_scalar", b.unary("tanh", scores, "scores"), "scores", value=cap)
    if kind == "biased":
        scores = b.binary("add", scores, b.parameter("score_bias", "heads", "1", "1"), "scores")
    if kind in ("causal", "causal_capped"):
        mask = b.add("causal_mask", (scores,), b.shape(scores)[-2:], dtype="bool", name="mask")
        scores = b.add("masked_fill", (scores, mask), b.shape(scores), name="scores")
    if kind in ("relu", "squared_relu"):
        weights = b.unary("relu", scores, "weights")
        weights = b.unary("square", weights, "weights") if kind == "squared_relu" else weights
        weights = b.unary("div_scalar", weights, "weights", value=16.0)
    elif kind == "sigmoid":
        weights = b.unary("sigmoid", scores, "weights")
    else:
        weights = b.along("softmax", scores, -1, "weights")
    return b.matmul(weights, value, "attended")


KINDS = (
    "plain",
    "plain",
    "causal",
    "causal",
    "capped",
    "biased",
    "cosine",
    "relu",
    "squared_relu",
    "sigmoid",
    "linear",
)


def attention(rng: Random) -> Drawn:
    """Multi-head attention with projections, of one input or across two."""
    b = Builder(rng)
    batch, length, features = (
        b.size("batch_size", "batch"),
        b.size("sequence", "sequence"),
        b.size("features", "hidden", True),
    )
    b.size("heads", "heads", True)
    b.size("head_dim", "head_dim", True)
    x = b.input("x", batch, length, features)
    cross = rng.random() < 0.2
    other = b.input("context", batch, b.size("context_length", "sequence"), features) if cross else x
    kind = rng.choice([each for each in KINDS if not (cross and "causal" in each)])
    z = row_norm(b, x) if rng.random() < 0.4 else x
    source = other if cross else z
    inner, bias = "(heads * head_dim)", rng.random() < 0.4
    query = split(b, b.linear(z, inner, "query", bias, "query"), "query")
    key = split(b, b.linear(source, inner, "key", bias, "key"), "key")
    value = split(b, b.linear(source, inner, "value", bias, "value"), "value")
    y = merge(b, attend(b, query, key, value, kind))
    y = b.linear(y, features, "output", bias, "y") if rng.random() < 0.8 else y
    if b.shape(y) == b.shape(x) and rng.random() < 0.6:
        y = b.binary("add", x, y)
        y = row_norm(b, y) if rng.random() < 0.3 else y
    name = f"{'cross_' if cross else ''}{kind}_attention"
    return b.done(y, 3, "attention", name, "batch_size", "matmul", "attention")


def bare_attention(rng: Random) -> Drawn:
    """Attention on given queries, keys and values, without projections."""
    b = Builder(rng, rng.choices(("float32", "bfloat16"), (5, 1))[0])
    shape = (b.size("batch_size", "batch"), b.size("heads", "heads", True), b.size("sequence", "sequence"), "head_dim")
    b.size("head_dim", "head_dim", True)
    query, key, value = (b.input(name, *shape) for name in ("query", "key", "value"))
    kind = rng.choice(KINDS)
    y = attend(b, query, key, value, kind)
    after = rng.choice(("", "activation", "norm", "gate", "scale"))
    if after == "activation":
        y = b.activation(y)
    elif after == "norm":
        y = b.along("plain_layer_norm", y)
    elif after == "gate":
        y = b.binary("mul", y, b.unary("sigmoid", query, "gate"))
    elif after == "scale":
        y = b.unary("mul_scalar", y)
    for name in ("heads", "head_dim"):
        used = any(name in node.init or f"self.{name}" in str(dict(node.attrs)) for node in b.nodes)
        if not used:
            b.init_sizes.remove(name)
    return b.done(y, 3, "bare_attention", f"{kind}_bare_attention", "batch_size", "matmul", "attention")


def transformer(rng: Random) -> Drawn:
    """Attention and a feed-forward network with residual sums."""
    b = Builder(rng)
    batch, length, features = (
        b.size("batch_size", "batch"),
        b.size("sequence", "sequence"),
        b.size("features", "hidden", True),
    )
    b.size("heads", "heads", True)
    b.size("head_dim", "head_dim", True)
    x = b.input("x", batch, length, features)
    kind, inner = rng.choice(KINDS), "(heads * head_dim)"
    z = row_norm(b, x)
    parts = [split(b, b.linear(z, inner, name, False, name), name) for name in ("query", "key", "value")]
    y = b.linear(merge(b, attend(b, parts[0], parts[1], parts[2], kind)), features, "output", var="y")
    x2 = b.binary("add", x, y, "x")
    z = row_norm(b, x2)
    hidden = b.size("hidden", "hidden", True)
    if rng.random() < 0.4:
        gate = act(b, b.linear(z, hidden, "gate", False, "gate"), "gate")
        z = b.binary("mul", gate, b.linear(z, hidden, "up", False, "up"))
    else:
        z = act(b, b.linear(z, hidden, "up", var="z"))
    y = b.binary("add", x2, b.linear(z, features, "down", var="z"))
    return b.done(y, 3, "transformer", f"{kind}_transformer", "batch_size", "matmul", "attention", "normalisation")


FAMILIES = {"attention": (attention, 22), "bare_attention": (bare_attention, 12), "transformer": (transformer, 8)}

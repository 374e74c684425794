"""Level 3: recurrent cells, unrolled over a few steps."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from evaluators.generator.builder import Builder, Drawn


def recurrent(rng: Random) -> Drawn:
    """A cell that is applied to each step of a short sequence."""
    b = Builder(rng)
    steps = rng.randint(2, 5)
    batch, features, hidden = (
        b.size("batch_size", "batch"),
        b.size("features", "hidden", True),
        b.size("hidden", "hidden", True),
    )
    b.size("steps", str(steps))
    x = b.input("x", batch, "steps", features)
    state = b.input("state", batch, hidden)
    kind = rng.choice(("plain", "gated", "minimal", "residual", "lstm"))
    squash = rng.choice(("tanh", "softsign", "relu6", "sin"))
    layers: dict[str, tuple[str, str]] = {}

    def layer(value: int, name: str, var: str) -> int:
        """A linear layer whose weights all steps share."""
        y = b.linear(value, hidden, name, name.startswith("in"), var)
        known = layers.setdefault(name, (b.nodes[y].module, b.nodes[y].init))
        b.nodes[y] = replace(b.nodes[y], module=known[0], init=known[1])
        return y

    cell = b.unary("tanh", state, "cell") if kind == "lstm" else -1
    for index in range(steps):
        step = b.view("select", x, (batch, features), "step", dim=1, index=index)
        drive = b.binary("add", layer(step, "input", "drive"), layer(state, "recur", "recurrent"), "drive")
        if kind == "plain":
            state = b.unary(squash, drive, "state")
            continue
        gate = b.binary("add", layer(step, "input_gate", "gate"), layer(state, "recur_gate", "recurrent"), "gate")
        gate = b.unary("sigmoid", gate, "gate")
        proposal = b.unary(squash, drive, "proposal")
        if kind == "residual":
            state = b.binary("add", state, b.binary("mul", gate, proposal, "change"), "state")
        elif kind == "lstm":
            kept = b.binary("mul", gate, cell, "kept")
            cell = b.binary("add", kept, proposal, "cell")
            state = b.unary("tanh", cell, "state")
        elif kind == "minimal":
            state = b.binary("mul", gate, proposal, "state")
        else:
            closed = b.unary("rsub_scalar", gate, "closed", value=1.0)
            kept = b.binary("mul", gate, state, "kept")
            state = b.binary("add", kept, b.binary("mul", closed, proposal, "change"), "state")
    y = state
    if rng.random() < 0.4:
        y = b.linear(state, b.size("classes", "classes", True), "classify", var="y")
    return b.done(y, 3, "recurrent", f"{kind}_cell_{steps}_steps", "batch_size", "matmul", "recurrent")


FAMILIES = {"recurrent": (recurrent, 9)}

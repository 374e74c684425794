"""The steps of a region's kernel, in an order that Triton and C++ texts are printed from.

Row operators are written out in maps and reductions here, once for both languages.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from evaluators.generator.elementwise import ELEMENTWISE
from evaluators.generator.graph import Graph, Node, Shape
from evaluators.generator.rules.regions import Region, block_of, form_of

OTHER_MAPS = {
    "div_width": ("{0} / width", "{0} / width"),
    "div_less": ("{0} / (width - 1)", "{0} / (width - 1)"),
    "add_eps": ("{0} + {value}", "{0} + {value}f"),
    "at_least": ("tl.maximum({0}, {value})", "std::fmax({0}, {value}f)"),
}
"""Maps of row operators that no operator of torch stands for: their texts in Triton and in C++."""


@dataclass(frozen=True)
class Step:
    """`target` = `op` of `args`. `op`: an element-wise operator, or `sum`, `max`, `min` over the row. `is_full`:
    whether the result has a number for each element, rather than one a row."""

    target: str
    op: str
    args: tuple[str, ...]
    attrs: tuple[tuple[str, object], ...] = ()
    is_full: bool = True

    @property
    def reduces(self) -> bool:
        return self.op in ("sum", "max", "min")


@dataclass(frozen=True)
class Operand:
    """A value from outside: its name, the text that passes it, its `form` in rows, and the `block` of axes along which
    it varies."""

    name: str
    text: str
    form: str
    block: tuple[int, int] | None


@dataclass
class Steps:
    """What a kernel computes: operands, steps, and the name of the result."""

    graph: Graph
    region: Region
    operands: list[Operand] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    result: str = ""
    forms: dict[str, bool] = field(default_factory=dict)
    """Whether a value is full, by name."""

    @property
    def extra(self) -> list[str]:
        """Texts of weights that modules of the region hold, passed after the region's inputs."""
        return [operand.text for operand in self.operands if operand.text.startswith("self.")]


def steps_of(graph: Graph, region: Region) -> Steps:
    """Writes a region out in steps."""
    made = Steps(graph, region)
    names: dict[int, str] = {}
    for number, index in enumerate(region.inputs):
        node = graph.nodes[index]
        wanted = node.module or node.name or ("x" if number == 0 else "other")
        name = _free(re.sub(r"\W", "_", wanted), [operand.name for operand in made.operands])
        names[index] = name
        form = form_of(node.shape, region.shape)
        made.operands.append(Operand(name, f"{{{number}}}", form, block_of(node.shape, region.shape)))
        made.forms[name] = form == "full" or (form in ("", "vector"))
    for index in region.nodes:
        names[index] = _write(made, index, [names[arg] for arg in graph.nodes[index].args])
    made.result = names[region.output]
    return made


def _free(name: str, taken: list[str]) -> str:
    free, number = name, 2
    while free in taken or free in ("width", "rows", "count", "out"):
        free, number = f"{name}{number}", number + 1
    return free


class _Writer:
    """Appends steps; each value gets the next number."""

    def __init__(self, made: Steps) -> None:
        self._made = made

    def map(self, op: str, *args: str, **attrs: object) -> str:
        is_full = any(self._made.forms[arg] for arg in args)
        return self._put(op, args, attrs, is_full)

    def reduce(self, op: str, arg: str) -> str:
        return self._put(op, (arg,), {}, False)

    def _put(self, op: str, args: tuple[str, ...], attrs: dict[str, object], is_full: bool) -> str:
        target = f"v{len(self._made.steps)}"
        self._made.steps.append(Step(target, op, args, tuple(attrs.items()), is_full))
        self._made.forms[target] = is_full
        return target


def _write(made: Steps, index: int, args: list[str]) -> str:
    """The steps of one node. Returns the name of its result."""
    node, w = made.graph.nodes[index], _Writer(made)
    if node.op in ELEMENTWISE:
        return w.map(node.op, *args, **{key: value for key, value in node.attrs.items() if key != "in_place"})
    x = args[0]
    if node.op in ("sum", "amax", "amin"):
        return w.reduce({"sum": "sum", "amax": "max", "amin": "min"}[node.op], x)
    if node.op == "mean":
        return w.map("div_width", w.reduce("sum", x))
    if node.op in ("var", "std"):
        centred = w.map("sub", x, w.map("div_width", w.reduce("sum", x)))
        variance = w.map("div_less", w.reduce("sum", w.map("square", centred)))
        return w.map("sqrt", variance) if node.op == "std" else variance
    if node.op == "norm":
        return w.map("sqrt", w.reduce("sum", w.map("square", x)))
    if node.op == "norm1":
        return w.reduce("sum", w.map("abs", x))
    if node.op == "normalize":
        length = w.map("sqrt", w.reduce("sum", w.map("square", x)))
        return w.map("div", x, w.map("at_least", length, value=1e-12))
    if node.op in ("softmax", "softmin", "log_softmax", "logsumexp"):
        return _softmax(w, node.op, x)
    return _norm(made, node, w, args)


def _softmax(w: _Writer, op: str, x: str) -> str:
    x = w.map("neg", x) if op == "softmin" else x
    largest = w.reduce("max", x)
    shifted = w.map("sub", x, largest)
    exponentials = w.map("exp", shifted)
    total = w.reduce("sum", exponentials)
    if op == "logsumexp":
        return w.map("add", w.map("log", total), largest)
    return w.map("sub", shifted, w.map("log", total)) if op == "log_softmax" else w.map("div", exponentials, total)


def _norm(made: Steps, node: Node, w: _Writer, args: list[str]) -> str:
    x, eps = args[0], node.attrs.get("eps", 1e-05)
    if "layer_norm" in node.op:
        x = w.map("sub", x, w.map("div_width", w.reduce("sum", x)))
    mean = w.map("div_width", w.reduce("sum", w.map("square", x)))
    y = w.map("mul", x, w.map("rsqrt", w.map("add_eps", mean, value=eps)))
    weights = list(args[1:])
    if node.op == "layer_norm":
        weights = [_module_weight(made, node.module, part) for part in ("weight", "bias")]
    if weights:
        y = w.map("mul", y, weights[0])
    return w.map("add", y, weights[1]) if len(weights) > 1 else y


def _module_weight(made: Steps, module: str, part: str) -> str:
    name = _free(f"{module}_{part}", [operand.name for operand in made.operands])
    rank = len(made.region.shape)
    made.operands.append(Operand(name, f"self.{module}.{part}", "vector", (rank - 1, rank)))
    made.forms[name] = True
    return name


def text_of_step(step: Step, language: int) -> str:
    """The step's expression in Triton (0) or C++ (1)."""
    if step.op in OTHER_MAPS:
        template = OTHER_MAPS[step.op][language]
    else:
        operator = ELEMENTWISE[step.op]
        template = (operator.triton, operator.cpp)[language]
    return template.format(*step.args, **{key: _constant(value) for key, value in step.attrs})


def _constant(value: object) -> object:
    """A number as both languages read it: with a point, since C++ takes `2f` for an error."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return repr(float(value))


def needs_tanh(made: Steps) -> bool:
    """Whether a step calls the hyperbolic tangent, which Triton's language lacks."""
    return any("tanh(" in text_of_step(step, 0) for step in made.steps if not step.reduces)


def whole_operand(made: Steps) -> Operand:
    """An operand with a number for each element, whose shape and dtype the output follows."""
    return next(operand for operand in made.operands if operand.form == "full")


def output_shape(made: Steps) -> Shape:
    return made.graph.nodes[made.region.output].shape

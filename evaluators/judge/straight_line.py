"""What a program's text says of the surroundings that its values depend on: the device, and sizes that it was written
for. Nothing is executed here.

A straight-line program calls operators one after another. It chooses nothing, and its text has no numbers but those of
the reference. So it cannot know the sizes of its task, and it computes the same function at all sizes, on all devices.
Whatever might be otherwise is no straight-line program here, however harmless it looks.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Collection

from evaluators.records import Task
from evaluators.syntax import parse_source, shared_tree
from evaluators.tasks import program_source
from evaluators.tasks.shapes import input_sizes

_LOOPS = (ast.For, ast.AsyncFor, ast.comprehension)
_CHOICES = (ast.If, ast.IfExp, ast.While, ast.Try, ast.TryStar, ast.Match, ast.BoolOp)
_OF_SIZES = (ast.FloorDiv, ast.Mod, ast.LShift, ast.RShift)  # the rest of a division depends on the size
_MODULES = frozenset({"__future__", "math", "torch", "typing"})
_BUILTINS = frozenset({"super", "float", "len", "list", "tuple", "staticmethod", "classmethod", "property", "object"})
_SMALL = frozenset({0, 1, 2, 3, 0.5})
_WORD = re.compile(  # names and texts of what differs between devices, or between equal elements
    r".*(?:cpu|cuda|\bmeta\b|autocast|half|float16|attention|scatter|sort|unique|available|backend|version).*"
    r"|is_\w+|get_(?!item|inputs|init_inputs)\w+|set_(?!item)\w+|topk|arg(?:max|min|where)|kthvalue|median|nanmedian|mode|nonzero"
    r"|index_(?:put|copy|fill|reduce)_?|put_?|as_strided\w*|histc|bincount|searchsorted|bucketize|config|training",
    re.IGNORECASE | re.DOTALL,
)


def is_straight_line(source: str, numbers: Collection[float]) -> bool:
    """Whether a program is one. `numbers`: those that may stand in its text, beside the smallest. False for a text that
    does not parse."""
    try:
        tree = shared_tree(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    nodes = list(ast.walk(tree))
    if any(isinstance(node, (*_LOOPS, *_CHOICES, *_OF_SIZES)) or _writes_anywhere(node) for node in nodes):
        return False
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    return (
        all(root in _MODULES for node in nodes for root in _imported(node))
        and not _names_devices(nodes)
        and not (names & vars(builtins).keys()) - _BUILTINS
        and _numbers(nodes) <= {*numbers, *_SMALL}
    )


def numbers_of_model(task: Task) -> set[float] | None:
    """The numbers in the text of the task's reference, without the sizes of its inputs; None if the reference itself
    may depend on its device, or may choose by sizes."""
    body, sizes = parse_source(program_source(task)).body, input_sizes(task)
    own = [node for node in body if not (isinstance(node, ast.FunctionDef) and node.name == "get_inputs")]
    nodes = [part for node in own for part in ast.walk(node)]
    if any(isinstance(node, _CHOICES) for node in nodes) or _names_devices(nodes):
        return None
    return _numbers(nodes) - set(map(float, sizes.values()))


def _names_devices(nodes: Collection[ast.AST]) -> bool:
    """Whether anything names a device, or what differs between devices. A new tensor may be asked for on the device of
    another one."""
    passed = {id(node.value) for node in nodes if isinstance(node, ast.keyword) and node.arg == "device"}
    remarks = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.Attribute) and node.attr == "device" and id(node) not in passed:
            return True
        words = () if id(node) in remarks else (value for _, value in ast.iter_fields(node) if isinstance(value, str))
        if any(_WORD.fullmatch(word) for word in words):
            return True
    return False


def _writes_anywhere(node: ast.AST) -> bool:
    """Whether it writes to elements that only values name. The same element may be named twice: which value it gets
    then depends on the device."""
    if not isinstance(node, ast.Subscript) or isinstance(node.ctx, ast.Load):
        return False
    places = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    return not all(isinstance(place, ast.Slice | ast.Constant | ast.UnaryOp) for place in places)


def _imported(node: ast.AST) -> list[str]:
    """The roots of the modules that a statement imports."""
    if isinstance(node, ast.Import):
        return [alias.name.partition(".")[0] for alias in node.names]
    return [(node.module or "").partition(".")[0]] if isinstance(node, ast.ImportFrom) else []


def _numbers(nodes: Collection[ast.AST]) -> set[float]:
    """The numbers in a text; NaN for a complex one, which is equal to none."""
    values = [node.value for node in nodes if isinstance(node, ast.Constant) and not isinstance(node.value, bool)]
    found = {float(value) for value in values if isinstance(value, int | float)}
    return found | {float("nan") for value in values if isinstance(value, complex)}

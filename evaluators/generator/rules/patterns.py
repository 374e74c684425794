"""Finds written-out functions in a graph: what must match, and what each name stands for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from evaluators.generator.graph import Editor, Graph, Node

Bound = dict[str, Any]
Pattern = Any
"""A name (a variable: any value, the same everywhere), or a tuple `(op, pattern, ...)` of an operator; a last mapping
holds attributes that must be equal, or names of attributes (as text that begins with `$`) to remember."""

_COMMUTE = frozenset(("add", "mul", "maximum", "minimum"))


def match(graph: Graph, index: int, pattern: Pattern, bound: Bound) -> Iterator[Bound]:
    """All ways in which a value fits a pattern. `bound[""]` lists the operators matched."""
    if isinstance(pattern, str):
        if bound.get(pattern, index) == index:
            yield {**bound, pattern: index}
        return
    op, *parts = pattern
    attrs = parts.pop() if parts and isinstance(parts[-1], dict) else {}
    node = graph.nodes[index]
    if node.op not in op.split("|") or len(node.args) < len(parts):
        return
    seen = {**bound, "": [*bound.get("", []), index]}
    for key, wanted in attrs.items():
        value = node.attrs.get(key)
        if isinstance(wanted, str) and wanted.startswith("$"):
            seen[wanted] = value
        elif callable(wanted):
            if not wanted(value):
                return
        elif value != wanted:
            return
    orders = [list(node.args)]
    if node.op in _COMMUTE and len(node.args) == 2:
        orders.append(list(reversed(node.args)))
    for order in orders:
        yield from _match_all(graph, order, parts, seen)


def _match_all(graph: Graph, args: list[int], parts: list[Pattern], bound: Bound) -> Iterator[Bound]:
    if not parts:
        yield bound
        return
    for found in match(graph, args[0], parts[0], bound):
        yield from _match_all(graph, args[1:], parts[1:], found)


@dataclass(frozen=True)
class Rewrite:
    """A rule of algebra. `make` gives the new node's operator, the names of its arguments, and its attributes; None if
    the match does not allow it. `reason`, `idea`: a teacher's words. `private`: whether the operators inside must have
    no other reader (else the rewrite saves nothing)."""

    name: str
    pattern: Pattern
    make: Callable[[Graph, int, Bound], tuple[str, list[Any], Mapping[str, Any]] | None]
    reason: str
    idea: str
    private: bool = True


def rewrite(graph: Graph, rules: list[Rewrite]) -> tuple[Graph, list[Rewrite]]:
    """Applies the rules wherever they match, again and again, and says which of them did."""
    used: list[Rewrite] = []
    for _ in range(40):
        changed = _rewrite_once(graph, rules)
        if changed is None:
            return graph, used
        graph, rule = changed
        if rule not in used:
            used.append(rule)
    return graph, used


def _rewrite_once(graph: Graph, rules: list[Rewrite]) -> tuple[Graph, Rewrite] | None:
    alive, users = graph.alive(), graph.users()
    for rule in rules:
        for index in sorted(alive, reverse=True):
            for bound in match(graph, index, rule.pattern, {}):
                inner = [each for each in bound[""] if each != index]
                if rule.private and (
                    any(user not in bound[""] for each in inner for user in users[each] if user in alive)
                    or graph.output in inner
                ):
                    continue
                made = rule.make(graph, index, bound)
                if made is not None:
                    return _replace(graph, index, *made), rule
    return None


def _replace(graph: Graph, index: int, op: str, args: list[Any], attrs: Mapping[str, Any]) -> Graph:
    """The graph with a node replaced. An argument is an index, or a new node as (op, arguments, attributes, shape)."""
    old = graph.nodes[index]
    editor = Editor(graph)
    for each in range(len(graph.nodes)):
        if each != index:
            editor.keep(each)
            continue
        places = [_place(editor, arg, old) for arg in args]
        extra = dict(attrs)
        module = extra.pop("module", "")
        editor.put(each, Node(op, tuple(places), extra, old.shape, old.dtype, old.span, old.name, module))
    return editor.done()


def _place(editor: Editor, arg: Any, like: Node) -> int:
    if isinstance(arg, int):
        return editor.place[arg]
    op, args, attrs, shape = arg
    return editor.add(
        Node(op, tuple(_place(editor, each, like) for each in args), dict(attrs), tuple(shape), like.dtype)
    )

"""Fingerprints of functions: they show whether the inside of a function was exchanged while the object is the same.

Runs in the candidate's process (untrusted): a program can forge its results. A fingerprint holds code, defaults, cells,
and the pointers of C functions: all that a program can reach from Python and `ctypes`. Machine code is compared by its
first bytes only.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator, Mapping
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MethodDescriptorType,
    MethodType,
    WrapperDescriptorType,
)
from typing import Any

_WORD = ctypes.sizeof(ctypes.c_void_p)
_OPENING = 16  # bytes of a C function: enough to show a jump to elsewhere
_DEPTH = 3  # of containers and wrapped functions
_EMPTY = object()
# Offsets, in words, of the pointers that decide what runs when an object is called (CPython 3.11 to 3.13).
_FUNCTION_CALL = 15 if sys.version_info < (3, 12) else 16
_TYPE_CALL = 16
_WORDS: dict[type, tuple[int, ...]] = {
    FunctionType: (_FUNCTION_CALL,),
    BuiltinFunctionType: (2, 3, 6),
    MethodDescriptorType: (5, 6),
    WrapperDescriptorType: (5, 6),
    GetSetDescriptorType: (5,),
    type: (_TYPE_CALL,),
}
_TABLES = {
    BuiltinFunctionType: 2,
    MethodDescriptorType: 5,
    GetSetDescriptorType: 5,
}  # the offset of the word that points to the method's definition


class Fingerprint:
    """The fingerprint of one object, as it is now."""

    def __init__(self, value: object) -> None:
        self._parts = tuple(_parts(value, _DEPTH))
        # Copies, since code whose instructions are overwritten in place is still the same object.
        self._codes = tuple((part, part.replace()) for part in self._parts if isinstance(part, CodeType))

    def matches(self, other: Fingerprint) -> bool:
        """Whether `other`, taken later, is the fingerprint of the same object, unchanged."""
        if len(self._parts) != len(other._parts) or not all(map(_same, self._parts, other._parts)):
            return False
        return all(code == copy for code, copy in self._codes)


def _same(before: object, after: object) -> bool:
    return before is after or (type(before) is type(after) and isinstance(before, int | bytes) and before == after)


def _parts(value: Any, depth: int) -> Iterator[object]:
    """The object and all that decides what its calls do. Objects compare by identity; words and bytes by value."""
    yield value
    kind = type(value)
    yield from _memory(value, type if isinstance(value, type) else kind)
    inner: tuple[object, ...] = ()
    if kind is FunctionType:
        yield from (value.__code__, value.__globals__, value.__builtins__, value.__closure__)
        inner = (value.__defaults__, value.__kwdefaults__, *(value.__closure__ or ()))
    elif kind is CellType:
        inner = (_content(value),)
    elif kind in (staticmethod, classmethod, MethodType):
        inner = (value.__func__,)
    elif kind is property:
        inner = (value.fget, value.fset)
    elif kind is tuple:
        inner = value
    elif kind is dict:
        inner = (*value.keys(), *value.values())
    if depth:
        for part in inner:
            yield from _parts(part, depth - 1)


def _content(cell: CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:
        return _EMPTY


def _memory(value: object, kind: type) -> Iterator[object]:
    """The words of the object that decide what is called, those of its method's definition, and the first bytes of the
    function that it names."""
    if sys.version_info >= (3, 14):  # the offsets are others there
        return
    for index in _WORDS.get(kind, ()):
        yield _word(id(value) + index * _WORD)
    if kind in _TABLES:
        table = _word(id(value) + _TABLES[kind] * _WORD)
        for function in (_word(table + _WORD), _word(table + 2 * _WORD)):
            yield function
            if function > 1 << 16:  # smaller values are flags, or no pointer
                yield ctypes.string_at(function, _OPENING)


def _word(address: int) -> int:
    return ctypes.c_void_p.from_address(address).value or 0


def builtins_of(functions: Mapping[str, object], names: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """The built-in functions that these functions call by name."""
    used = {name for value in functions.values() if isinstance(value, FunctionType) for name in value.__code__.co_names}
    for name in sorted(used):
        if name in names and callable(names[name]):
            yield name, names[name]

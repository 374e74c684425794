"""Nested inputs and outputs as a JSON description plus a flat list of tensors, and their layout in shared memory.

Both sides of the pipe use it. Nothing in here may trust a description: a size in bytes is always computed from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

Spec = dict[str, Any]
_ALIGNMENT = 512  # bytes, as in torch's CUDA allocator
PLAIN_DTYPES = frozenset(
    f"{kind}{bits}"
    for kind, sizes in (
        ("float", (16, 32, 64)),
        ("int", (8, 16, 32, 64)),
        ("uint", (8, 16, 32, 64)),
        ("complex", (64, 128)),
    )
    for bits in sizes
) | {"bfloat16", "bool", "float8_e4m3fn", "float8_e5m2"}
_DTYPES = {str(value).removeprefix("torch."): value for value in vars(torch).values() if isinstance(value, torch.dtype)}
_IS_CONJ, _IS_NEG = Tensor.is_conj, Tensor.is_neg
_PLAIN_TYPES = (Tensor, torch.nn.Parameter, tuple, list, dict, bool, int, float, str)
_OWN_MODULE = re.compile(r"reference|candidate|task_\w+")  # as runners and the judge name the modules of programs


def flatten(value: Any) -> tuple[Spec, list[Tensor]]:
    """Describes a value made of tensors, numbers, strings, None, and tuples, lists and dicts of these. Returns the
    description and the tensors, in order."""
    tensors: list[Tensor] = []
    return _describe(value, tensors), tensors


def _describe(value: Any, tensors: list[Tensor]) -> Spec:
    """Reads the value as its builtin base class would, so that no method of a program's own class runs meanwhile."""
    kind = type(value)
    if issubclass(kind, Tensor):
        tensors.append(value)
        return {
            "kind": "tensor",
            "type": _type_name(kind),
            "device": value.device.type,
            "dtype": str(value.dtype).removeprefix("torch."),
            "shape": list(value.shape),
            "stride": list(Tensor.stride(value)) if value.layout is torch.strided else [],
        }
    for sequence in (tuple, list):
        if issubclass(kind, sequence):
            items = [_describe(item, tensors) for item in sequence.__iter__(value)]
            return {"kind": _type_name(kind), "items": items}
    if issubclass(kind, dict):
        items = [_describe(item, tensors) for item in dict.values(value)]
        return {"kind": _type_name(kind), "keys": [_plain_text(key) for key in dict.keys(value)], "items": items}
    for base in (bool, int, float, str):
        if issubclass(kind, base):
            return {"kind": "value", "value": base.__repr__(value), "type": _type_name(kind)}
    return {"kind": "value", "value": "None"} if value is None else {"kind": "other", "type": _type_name(kind)}


def _plain_text(key: Any) -> str:
    """A key as text; an object of another class than these by its class alone."""
    return str(key) if any(type(key) is plain for plain in (str, int, float, bool)) else _type_name(type(key))


def _type_name(kind: type) -> str:
    """The name of a type, which no other type can take from a plain one: that of any other holds a dot.

    A program's own classes have the same name for the reference and the candidate, whose modules differ.
    """
    for plain in _PLAIN_TYPES:
        if kind is plain:  # a class can be equal to any other
            return plain.__name__
    module = str(kind.__module__)
    return f"program.{kind.__name__}" if _OWN_MODULE.fullmatch(module) else f"{module}.{kind.__qualname__}"


def tensor_specs(spec: Spec) -> list[Spec]:
    """The descriptions of the tensors, in the order of `flatten`."""
    if spec["kind"] == "tensor":
        return [spec]
    return [leaf for item in spec.get("items", ()) for leaf in tensor_specs(item)]


def of_any_strides(spec: Spec) -> Spec:
    """The description as one that tensors of other strides fit, too. Its own strides are those of memory for it."""
    if spec["kind"] == "tensor":
        return {**spec, "any_strides": True}
    return {**spec, "items": [of_any_strides(item) for item in spec["items"]]} if "items" in spec else spec


def of_own_strides(spec: Spec) -> Spec:
    """The inverse of `of_any_strides`."""
    if spec["kind"] == "tensor":
        return {key: value for key, value in spec.items() if key != "any_strides"}
    return {**spec, "items": [of_own_strides(item) for item in spec["items"]]} if "items" in spec else spec


def with_strides_of(expected: Spec, claimed: Mapping[str, Any]) -> Spec:
    """The description with the strides of another one, as a runner claims it, where these leave no gaps in memory.
    Returns `expected` as it is for a claim that does not fit it. Raises nothing."""
    try:
        return _with_strides_of(expected, claimed) if fits(expected, dict(claimed)) else expected
    except (KeyError, TypeError, AttributeError, ValueError):
        return expected


def _with_strides_of(expected: Spec, claimed: Mapping[str, Any]) -> Spec:
    if expected["kind"] == "tensor":
        strides = zip(expected["shape"], expected["stride"], claimed["stride"], strict=True)
        known = [theirs if size > 1 else own for size, own, theirs in strides]
        return {**expected, "stride": known} if _is_dense(claimed) else expected
    items = zip(expected.get("items", ()), claimed.get("items", ()), strict=True)
    return {**expected, "items": [_with_strides_of(*pair) for pair in items]} if "items" in expected else expected


def _is_dense(spec: Mapping[str, Any]) -> bool:
    """Whether the elements lie one beside the other in memory, in whatever order of dimensions."""
    following = 1
    for stride, size in sorted(zip(spec["stride"], spec["shape"], strict=True)):
        if type(stride) is not int or stride < 1 or (size > 1 and stride != following):
            return False
        following *= size
    return True


def fits(expected: Spec, actual: Spec) -> bool:
    """Whether a value of the description `actual` has the expected form."""
    return expected == actual or difference(expected, actual) is None


def tensors_of_form(expected: Spec, value: Any) -> list[Tensor] | None:
    """The tensors of a value of the expected form, in the order of `flatten`; None for one of another form.

    It takes a fifth of the time of `flatten` and `fits` for the usual output, one plain tensor."""
    if type(value) is Tensor and expected["kind"] == "tensor" and value.layout is torch.strided:
        if (
            expected["type"] == "Tensor"
            and value.dtype is _DTYPES[expected["dtype"]]
            and value.device.type == expected["device"]
            and [*value.shape] == expected["shape"]
            and ("any_strides" in expected or [*value.stride()] == expected["stride"])
        ):
            return [value]
        return None
    spec, tensors = flatten(value)
    return tensors if fits(expected, spec) else None


def difference(expected: Spec, actual: Spec, place: str = "output") -> str | None:
    """The first difference between two descriptions, in words; None if there is none. Type, dtype, shape, device and
    strides must be equal; strides only in number for one `of_any_strides`. `place`: the name of the value in the
    message."""
    if expected["kind"] != actual.get("kind"):
        return f"{place} is a {actual.get('kind')}, expected a {expected['kind']}"
    if expected["kind"] == "tensor":
        for key in ("type", "device", "dtype", "shape", "stride"):
            if key == "stride" and "any_strides" in expected and len(actual.get(key, ())) == len(expected[key]):
                continue
            if expected[key] != actual.get(key):
                return f"{place} has {key} {actual.get(key)}, expected {expected[key]}"
    elif expected["kind"] in ("value", "other"):
        return None if expected == actual else f"{place} is {str(actual)[:80]}, expected {str(expected)[:80]}"
    elif expected.get("keys") != actual.get("keys") or len(expected["items"]) != len(actual["items"]):
        return f"{place} has {len(actual['items'])} items, expected {len(expected['items'])}"
    for index, (wanted, given) in enumerate(zip(expected.get("items", ()), actual.get("items", ()), strict=True)):
        if message := difference(wanted, given, f"{place}[{index}]"):
            return message
    return None


def describe_mismatch(expected: Spec, actual: Mapping[str, Any]) -> str:
    """How the form of an output, as a runner claims it, differs from the expected one, in words. Raises nothing."""
    try:
        wanted, given = tensor_specs(expected), tensor_specs(dict(actual))
        if len(wanted) == len(given) == 1:
            expected, actual = wanted[0], given[0]
        return difference(expected, dict(actual)) or "the output has another form than the reference's"
    except (KeyError, TypeError, AttributeError, ValueError):
        return "the output has another form than the reference's, and no description"


def _strides(spec: Spec) -> list[int]:
    """The described strides; contiguous ones for an expanded tensor, since nobody can write into an expanded one."""
    if all(stride != 0 or size <= 1 for size, stride in zip(spec["shape"], spec["stride"], strict=True)):
        return list(spec["stride"])
    strides = [1]
    for size in reversed(spec["shape"][1:]):
        strides.insert(0, strides[0] * size)
    return strides


def _extent(spec: Spec) -> int:
    """Elements between the first and the last one in memory, inclusive."""
    if any(size == 0 for size in spec["shape"]):
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(spec["shape"], _strides(spec), strict=True))


def layout(specs: list[Spec]) -> tuple[list[int], int]:
    """The aligned offset of each tensor in one region, and the size that the region needs, in bytes."""
    offsets, total = [], 0
    for spec in specs:
        offsets.append(total)
        needed = _extent(spec) * _DTYPES[spec["dtype"]].itemsize
        total += -(-max(needed, 1) // _ALIGNMENT) * _ALIGNMENT
    return offsets, total


def views(specs: list[Spec], region: Tensor) -> list[Tensor]:
    """Tensors with the described dtypes, shapes and strides that lie in `region` (uint8), from its start."""
    offsets, _ = layout(specs)
    made = []
    for spec, offset in zip(specs, offsets, strict=True):
        dtype = _DTYPES[spec["dtype"]]
        flat = region[offset : offset + _extent(spec) * dtype.itemsize].view(dtype)
        made.append(torch.as_strided(flat, spec["shape"], _strides(spec)))
    return made


def bytes_spanned(spec: Spec) -> int:
    """Bytes from the first to the last element of the described tensor, with its own strides."""
    if 0 in spec["shape"]:
        return 0
    last = sum((size - 1) * stride for size, stride in zip(spec["shape"], spec["stride"], strict=True))
    return int((1 + last) * _DTYPES[spec["dtype"]].itemsize)


def view_at(spec: Spec, region: Tensor, offset: int) -> Tensor:
    """The described tensor, with its own strides, at an `offset` in bytes in `region` (uint8).

    Raises ValueError if it does not lie within the region, at an address that suits its dtype."""
    dtype, strides = _DTYPES[spec["dtype"]], spec["stride"]
    end = offset + bytes_spanned(spec)
    if offset < 0 or offset % dtype.itemsize or end > region.numel():
        raise ValueError("an output does not lie in the memory of the program's tensors")
    return torch.as_strided(region[offset:end].view(dtype), spec["shape"], strides)


def unflatten(value: Any, tensors: list[Tensor]) -> Any:
    """`value` with its tensors replaced by `tensors`, in the order of `flatten`."""
    return _replaced(value, iter(tensors))


def _replaced(value: Any, tensors: Iterator[Tensor]) -> Any:
    """Not a function within `unflatten`: it would refer to itself, and hold the tensors until cycles are collected."""
    if isinstance(value, Tensor):
        return next(tensors)
    if isinstance(value, dict):
        return {key: _replaced(part, tensors) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(_replaced(part, tensors) for part in value)
    return value


def dtype_of(spec: Spec) -> torch.dtype:
    """The dtype of a described tensor."""
    return _DTYPES[spec["dtype"]]


def is_plain(value: Tensor) -> bool:
    """Whether a tensor of a model's state can be copied as it is: dense, in memory, and of a dtype of whole bytes."""
    return value.layout is torch.strided and not value.is_meta and _name_of(value.dtype) in PLAIN_DTYPES


def form_of(name: str, value: Tensor) -> list[Any]:
    """Name, dtype and shape of a tensor of a model's state, for a message."""
    return [name, _name_of(value.dtype), list(value.shape)]


def is_lazy(value: Tensor) -> bool:
    """Whether its memory does not hold its values, but their conjugates or negatives."""
    return bool(_IS_CONJ(value) or _IS_NEG(value))


def without_repeats(target: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """A tensor and the value to write into it, each without the elements that an expanded tensor repeats."""
    for dimension, (size, stride) in enumerate(zip(target.shape, target.stride(), strict=True)):
        if stride == 0 and size > 1:
            target, value = target.narrow(dimension, 0, 1), value.narrow(dimension, 0, 1)
    return target, value


def _name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def plain_spec(dtype: str, shape: list[int]) -> Spec:
    """The description of a contiguous tensor, for `layout` and `views`."""
    stride = [1]
    for size in reversed(shape[1:]):
        stride.insert(0, stride[0] * size)
    return {"kind": "tensor", "dtype": dtype, "shape": list(shape), "stride": stride[: len(shape)]}

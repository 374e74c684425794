"""Rehearses a candidate's import, construction and first call without its device, as far as they get.

Runs in the candidate's process (untrusted), in a runner of a builder. Tensors have forms but neither values nor memory
(torch's `meta` device), whatever device the candidate names; the candidate is told that they are where it expects them.
The extensions that it builds in `forward` are therefore known, too, before a GPU is used for it.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

_META = torch.device("meta")
_IS_CUDA, _IS_CPU, _DEVICE = (getattr(Tensor, name).__get__ for name in ("is_cuda", "is_cpu", "device"))
_MOVES = (Tensor.cuda, Tensor.cpu)
_VALUES = (
    *(getattr(Tensor, f"__{name}__") for name in ("bool", "int", "float", "index")),
    Tensor.item,
    Tensor.tolist,
    Tensor.numpy,
)
_MULTIPROCESSORS = 132  # as many as an H100 or H200 has


class _Rehearsal(TorchFunctionMode):
    """Puts every tensor on `meta`, and reports it as on a device of `kind`."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (_IS_CUDA, _IS_CPU):
            return self.kind == ("cuda" if func == _IS_CUDA else "cpu")
        if func == _DEVICE:
            return torch.device(self.kind, 0) if self.kind == "cuda" else torch.device(self.kind)
        if func in _MOVES:
            return args[0].to(_META)
        if func in _VALUES:  # any value is as good as another
            return func(torch.ones(args[0].shape, dtype=args[0].dtype, device="cpu"))
        kwargs = {name: self._moved(value, name) for name, value in (kwargs or {}).items()}
        if func is Tensor.to:
            args = (args[0], *(self._moved(value, "device") for value in args[1:]))
        return func(*map(self._moved, args), **kwargs)

    @staticmethod
    def _moved(value: Any, name: str = "") -> Any:
        named = name == "device" and isinstance(value, str | int) and not isinstance(value, bool)
        is_device = named or isinstance(value, torch.device)
        return _META if is_device else value


@contextlib.contextmanager
def rehearsing(capability: str, name: str) -> Iterator[None]:
    """Within this block, tensors hold nothing and appear to be on a GPU of this compute `capability` and `name`; if the
    capability is empty, on the CPU. For a process that only rehearses: the pretended GPU stays after the block."""
    if capability:
        _pretend_gpu(capability, name)
    with _META, _Rehearsal("cuda" if capability else "cpu"), torch.no_grad():
        yield


def _pretend_gpu(capability: str, name: str) -> None:
    """Answers the questions about a GPU that programs ask before they build for it and when they launch a kernel."""
    major, _, minor = capability.partition(".")
    about = types.SimpleNamespace(name=name, major=int(major), minor=int(minor), multi_processor_count=_MULTIPROCESSORS)
    cuda: Any = torch.cuda
    answers: dict[str, Callable[..., Any]] = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "get_device_capability": lambda *_: (int(major), int(minor)),
        "get_device_name": lambda *_: name,
        "get_device_properties": lambda *_: about,
        "synchronize": lambda *_, **__: None,
        "current_stream": lambda *_: _Stream(),
        "default_stream": lambda *_: _Stream(),
        "stream": lambda *_: contextlib.nullcontext(),
        "device": lambda *_: contextlib.nullcontext(),
        "Stream": _Stream,
    }
    for key, answer in answers.items():
        setattr(cuda, key, answer)


class _Stream:
    """A stream of the pretended GPU."""

    cuda_stream = 0

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: None

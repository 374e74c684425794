"""What torch forces us to do, and what we rely on in it (docs/upgrading.md)."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Callable
from pathlib import Path

import torch
from torch import distributed, nn

Still = Callable[[object], None]
RUNNER = Path(__file__).parents[2] / "evaluators" / "runner"


def test_c10d_types(still: Still) -> None:
    names = ["BroadcastOptions", "HashStore", "PrefixStore", "ProcessGroupGloo", "Store", "TCPStore"]
    private = importlib.import_module("torch._C._distributed_c10d")
    still(all(hasattr(private, name) for name in names))
    text, exported = inspect.getsource(distributed), getattr(distributed, "__all__", ())
    # mypy's rule for a name that a module imports: it is exported by `__all__` or by `import NAME as NAME`.
    still(not all(name in exported or re.search(rf"\b{name} as {name}\b", text) for name in names))


def test_nccl_timeout(still: Still) -> None:
    options = importlib.import_module("torch._C._distributed_c10d").Backend.Options
    still(hasattr(options, "_timeout") and not hasattr(options, "timeout"))


def test_flash_attention(still: Still) -> None:
    from torch.nn.attention import varlen

    still(not any(re.search("backward|bwd|grad", name) for name in varlen.__all__))


def test_flash_operators(still: Still) -> None:
    arguments = {
        "forward": ["query", "key", "value", "cum_seq_q", "cum_seq_k", "max_q", "max_k", "dropout_p", "is_causal"],
        "backward": ["grad_out", "query", "key", "value", "out", "logsumexp", "cum_seq_q", "cum_seq_k", "max_q"],
    }
    for name, expected in arguments.items():
        schema = getattr(torch.ops.aten, f"_flash_attention_{name}").default._schema
        still([argument.name for argument in schema.arguments][: len(expected)] == expected)
        still("scale" in [argument.name for argument in schema.arguments if argument.kwarg_only])


def test_bfloat16_instructions(still: Still) -> None:
    public = [*dir(torch.backends.mkldnn), *dir(torch.backends.cpu), *torch.cpu.__all__]
    still(not any(re.search("bf16|bfloat16", name) for name in public if not name.startswith("_")))
    still(isinstance(torch.ops.mkldnn._is_mkldnn_bf16_supported(), bool))


def test_dropout_base(still: Still) -> None:
    public = [kind for kind in vars(nn).values() if inspect.isclass(kind) and not kind.__name__.startswith("_")]
    of_dropout = [kind for kind in public if issubclass(kind, nn.modules.dropout._DropoutNd)]
    still({nn.Dropout, nn.Dropout2d, nn.AlphaDropout} <= set(of_dropout))
    bases = [kind for kind in public if kind is not nn.Module and all(issubclass(one, kind) for one in of_dropout)]
    still(not bases)


def test_dispatch_mode(still: Still) -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    public = (torch, torch.utils, torch.overrides, torch.library, torch.autograd)
    still(inspect.isclass(TorchDispatchMode) and not any(hasattr(place, "TorchDispatchMode") for place in public))


def test_vector_instructions(still: Still) -> None:
    from torch._inductor import cpu_vec_isa

    still(callable(getattr(cpu_vec_isa, "valid_vec_isa_list", None)))


def test_below_python(still: Still) -> None:
    names = {
        node.attr
        for file in RUNNER.glob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "torch._C"
    }
    assert len(names) > 4, "the runner's files have moved"
    # A build for CPUs has none of the functions of CUDA.
    still(
        all(hasattr(torch._C, name) for name in names if torch.backends.cuda.is_built() or "cuda" not in name.lower())
    )

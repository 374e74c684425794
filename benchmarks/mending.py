"""Repairs three faults that keep published extensions from compiling, for more programs to compare compilers by.

Most published programs with inline CUDA do not compile as they are, and fall back to torch. Nothing else is repaired:
bodies of functions and kernels stay as published, except `tensor.type()`, which torch no longer accepts.
"""

from __future__ import annotations

import re
from dataclasses import replace

from evaluators.shared.extension import ExtensionRequest

# The text that `load_inline` writes for the functions that it is told to bind.
_MODULE = "\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {\n"
_BOUND = re.compile(r'^m\.def\("(\w+)", torch::wrap_pybind_function\(\1\), "\1"\);$', re.MULTILINE)
_TYPE = re.compile(r"(AT_DISPATCH_\w+\(\s*\w+)\.type\(\)")


def mended(request: ExtensionRequest) -> ExtensionRequest | None:
    """The request with a single module that binds only declared functions, and with `tensor.scalar_type()` for
    `tensor.type()`. None if there is nothing to repair."""
    sources = {name: _TYPE.sub(r"\1.scalar_type()", text) for name, text in request.sources}
    main = sources.get("main.cpp", "")
    begin = main.rfind(_MODULE)
    if begin >= 0:
        written = main[:begin]
        others = [written, *(text for name, text in sources.items() if name != "main.cpp")]
        if any("PYBIND11_MODULE" in text for text in others):
            sources["main.cpp"] = written + "\n"
        else:
            sources["main.cpp"] = _declared(written, _BOUND.findall(main[begin:]), "\n".join(others[1:]))
    repaired = replace(request, sources=tuple(sources.items()))
    return None if repaired == request else repaired


def _declared(text: str, names: list[str], device: str) -> str:
    """The host source with a module that binds those of `names` that are host functions, and their declarations."""
    bound, declarations = [], []
    for name in names:
        if re.search(rf"\b{name}\s*\(", text):
            bound.append(name)
            continue
        defined = re.search(
            rf"^[ \t]*((?:[\w:<>,*&]+[ \t]+)+[*&]*){name}\s*\(([^{{}};]*)\)\s*\{{", device, re.MULTILINE
        )
        if defined and "__global__" not in defined.group(1):
            bound.append(name)
            arguments = re.sub(r"=[^,)]*", "", defined.group(2))
            declarations.append(f"{defined.group(1).strip()} {name}({arguments});")
    bindings = [f'm.def("{name}", torch::wrap_pybind_function({name}), "{name}");' for name in bound]
    return "\n".join([text, *declarations]) + _MODULE + "\n".join(bindings) + "\n}\n"

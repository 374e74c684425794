"""Makes published extensions compile that three faults keep from it: more programs to compare compilers by.

Most published programs with inline CUDA fail to compile as they stand and fall back to torch. Nothing else is mended:
bodies of functions and kernels stay as published, but for `tensor.type()`, which torch no longer takes.
"""

from __future__ import annotations

import re
from dataclasses import replace

from evaluators.shared.extension import ExtensionRequest

# What `load_inline` writes for the functions that it is told to bind.
_MODULE = "\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {\n"
_BOUND = re.compile(r'^m\.def\("(\w+)", torch::wrap_pybind_function\(\1\), "\1"\);$', re.MULTILINE)
_TYPE = re.compile(r"(AT_DISPATCH_\w+\(\s*\w+)\.type\(\)")


def mended(request: ExtensionRequest) -> ExtensionRequest | None:
    """The request with one module, which binds functions that are declared, and with scalar types for `tensor.type()`.

    None where nothing of that is to be done."""
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
    found = replace(request, sources=tuple(sources.items()))
    return None if found == request else found


def _declared(text: str, names: list[str], device: str) -> str:
    """The host source with its module, which binds those of `names` that are functions of the host."""
    known, declarations = [], []
    for name in names:
        if re.search(rf"\b{name}\s*\(", text):
            known.append(name)
            continue
        defined = re.search(
            rf"^[ \t]*((?:[\w:<>,*&]+[ \t]+)+[*&]*){name}\s*\(([^{{}};]*)\)\s*\{{", device, re.MULTILINE
        )
        if defined and "__global__" not in defined.group(1):
            known.append(name)
            arguments = re.sub(r"=[^,)]*", "", defined.group(2))
            declarations.append(f"{defined.group(1).strip()} {name}({arguments});")
    bindings = [f'm.def("{name}", torch::wrap_pybind_function({name}), "{name}");' for name in known]
    return "\n".join([text, *declarations]) + _MODULE + "\n".join(bindings) + "\n}\n"

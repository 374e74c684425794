"""Libraries that take half a minute to compile. They begin to compile when the suite starts."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from configs.schema import LimitsConfig
from evaluators.compile.cache import BuildCache
from evaluators.compile.farm import ExtensionFarm
from evaluators.host.cpu_device import CpuDevice
from evaluators.host.device import Slot
from evaluators.host.zygote_handle import ZygoteHandle
from evaluators.runner.compiling import compile_extension
from evaluators.shared.extension import ExtensionRequest
from evaluators.shared.toolchain import Toolchain

SOURCE = Path(__file__).with_name("compared.cpp").read_text()
REQUEST = ExtensionRequest("compared", (("main.cpp", SOURCE),))
TOOLS = Toolchain()


def compile_both(folder: Path) -> dict[str, Path]:
    """The same extension against both kinds of headers, and the farm's glue in a store of its own."""
    folders = {name: folder / name for name in ("store", "torch", "thin")}
    for made in folders.values():
        made.mkdir()
        made.chmod(0o755)  # with any umask
    with ThreadPoolExecutor(2) as pool:
        torchs = pool.submit(compile_extension, REQUEST, TOOLS, folders["torch"], thin=False)
        glue = pool.submit(compile_glue, folders["store"])
        thin = pool.submit(compile_extension, REQUEST, TOOLS, folders["thin"], thin=True)
    return {"store": folders["store"], "glue": glue.result(), "torch": torchs.result(), "thin": thin.result()}


def compile_glue(store: Path) -> Path:
    zygote = ZygoteHandle(CpuDevice())
    farm = ExtensionFarm(BuildCache(store / "extensions"), LimitsConfig(), zygote, Slot(1990, (), ()), "")
    try:
        return farm.glue().folder / "warpsmith_glue.so"
    finally:
        zygote.close()


IN_BACKGROUND = {"compiled": compile_both}


@pytest.fixture(scope="session")
def compiled(in_background) -> dict[str, Path]:
    """Paths: `torch` and `thin`, the same extension against both kinds of headers; `glue`, and its `store`."""
    paths: dict[str, Path] = in_background("compiled")
    return paths

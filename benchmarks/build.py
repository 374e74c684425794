"""How fast the build farm compiles, beside torch's own way in the same run, and whether its libraries are right.

Prints tables of the figures that stand in `--out` and beside it (`table` prints these alone), which its sections write:
`cold` (all extensions in a fresh cache; a sample of them by torch's own way, too, and their kernels without torch's
headers), `same` (whether torch's builds of that sample and ours compute the same), `hit` (what the cache has),
`concurrent` (16 cold builds at once), `edits` (whether an edit ever gets a wrong artifact), `faults`.

Needs a C++ compiler, and CUDA's compiler for `--arch` other than `cpu`; `same` needs a GPU to run CUDA programs, and a
full disk in `faults` needs root. Without `--programs` it compiles the bundled programs alone.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.build_cache import concurrent, edits, hit
from benchmarks.build_cold import cold
from benchmarks.build_faults import faults
from benchmarks.build_jobs import compiling_requests
from benchmarks.build_programs import asked_for
from benchmarks.build_same import same
from benchmarks.build_tables import print_tables

app = typer.Typer(add_completion=False)
_CONCURRENT = 16
_SECTIONS = ("cold", "same", "hit", "concurrent", "edits", "faults")
_OUT = Path(f"benchmarks/results/build/{os.cpu_count()}_cores")


@app.command()
def main(
    sections: Annotated[list[str] | None, typer.Argument(help="Sections to run; all of them unless given.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of the figures; by the number of cores.")] = _OUT,
    programs: Annotated[Path | None, typer.Option(help="Published programs, in CUDA-L1's JSONL format.")] = None,
    arch: Annotated[str, typer.Option(help="Architecture to compile for.")] = "H200",
    samples: Annotated[int, typer.Option(help="Programs to compile by torch's own way, too.")] = 20,
    only: Annotated[str, typer.Option(help="Part of the names of the programs to take; all unless given.")] = "",
    count: Annotated[int, typer.Option(help="Random edits.")] = 1000,
) -> None:
    """Runs sections and prints the tables of the figures in `--out`."""
    chosen = sections or [*_SECTIONS]
    unknown = set(chosen) - ({"table"} if chosen == ["table"] else set(_SECTIONS))
    if unknown or ("same" in chosen and "cold" not in chosen):
        raise typer.BadParameter(f"no section {min(unknown)}" if unknown else "`same` needs the builds of `cold`")
    if chosen == ["table"]:
        for figures_of_machine in sorted(out.parent.iterdir()):
            print_tables(figures_of_machine)
        return
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="warpsmith-bench-") as folder:
        work = Path(folder)
        work.chmod(0o755)
        needed = set(chosen) & set(_SECTIONS) - {"edits"}
        asked = asked_for(programs, arch, work / "asked", only) if needed else []
        for section in chosen:
            print(f"== {section}", flush=True)
            if section == "cold":
                figures: Any = cold(work, arch, asked, samples)
            elif section == "same":
                figures = same(work, arch, asked)
            elif section == "hit":
                figures = hit(work, arch, compiling_requests(out, asked)[:_CONCURRENT])
            elif section == "concurrent":
                requests = compiling_requests(out, asked)[:_CONCURRENT]
                figures = concurrent(work, arch, requests) | {"cores": os.cpu_count()}
            elif section == "edits":
                figures = edits(work, count, 1) | {"cores": os.cpu_count()}
            else:
                figures = faults(work, arch, compiling_requests(out, asked)[0])
            (out / f"{section}.json").write_text(json.dumps(figures, indent=1))
    print_tables(out)


if __name__ == "__main__":
    app()

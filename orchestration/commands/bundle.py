"""`warpsmith bundle`: what another machine needs to go on with a run, in files of bounded size."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestration.commands.refusal import STOPPED, refuse

_WIDTH = 120  # columns of a table that no terminal shows

if TYPE_CHECKING:
    from rich.table import Table

    from orchestration.run.bundle import Written


def bundle(
    directory: Annotated[Path, typer.Argument(metavar="RUN", help="A run's directory. The run may be going on.")],
    output: Annotated[Path, typer.Option(metavar="FOLDER", help="Where to write the bundle, in place of an old one.")],
    max_mib: Annotated[float, typer.Option(help="MiB of all files together.", min=0.1)] = 60.0,
    max_file_mib: Annotated[float, typer.Option(help="MiB of each file.", min=0.1)] = 15.0,
) -> None:
    """Bundle a run's last commit. `warpsmith run --from-bundle FOLDER` goes on from it, on any machine."""
    from rich.console import Console

    from orchestration.run.bundle import Limits, write_bundle
    from orchestration.run.bundle_folder import MIB
    from orchestration.run.directory import RunDirectory
    from orchestration.setup.requirements import requirements_of

    run = RunDirectory(str(directory.parent), directory.name)
    limits = Limits(int(max_mib * MIB), int(max_file_mib * MIB))
    try:
        config = run.read_config()
        written = write_bundle(run, config, output, limits, requirements_of(run, config))
    except OSError as error:
        raise refuse(f"--output {output}: {error}", STOPPED) from None
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDTH)
    console.print(_table(written))
    state = written.state
    at = f"{state.cycle}-{state.phase} step {state.step}" if state.phase else "the start"
    files = sum(1 for _ in output.iterdir())
    console.print(
        f"{output}: {at}, policy version {state.policy_version}; {written.size / MIB:.1f} of {max_mib:g} MiB in "
        f"{files} files",
        highlight=False,
        soft_wrap=True,
    )


def _table(written: Written) -> Table:
    """What the bundle holds, and what it leaves out, in MiB."""
    from rich import box
    from rich.table import Table

    from orchestration.run.bundle_folder import MIB

    table = Table("what", "MiB", "in the bundle", box=box.SIMPLE_HEAD, pad_edge=False)
    sizes: dict[str, tuple[int, int]] = {}
    for piece in written.pieces:
        raw, packed = sizes.get(piece.note, (0, 0))
        sizes[piece.note] = raw + piece.raw, packed + piece.packed
    for note, (raw, packed) in sizes.items():
        table.add_row(note, f"{raw / MIB:.2f}", f"{packed / MIB:.2f}")
    for item in written.left_out:
        table.add_row(item.what, "", f"left out: {item.why}")
    return table

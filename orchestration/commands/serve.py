"""`warpsmith serve`: the evaluators as a service over HTTP."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestration.commands.options import Arch
from orchestration.commands.refusal import STOPPED, refuse
from orchestration.commands.store import open_to_runners, warn_if_closed

if TYPE_CHECKING:
    from configs.schema import RunConfig

_AGAIN = "what was accepted is kept; the same command goes on with it"


def serve(
    config: Annotated[
        str, typer.Argument(help="A configuration file, as of `warpsmith run`, or key=value.", show_default=False)
    ] = "",
    overrides: Annotated[list[str] | None, typer.Argument(help="key=value ...", show_default=False)] = None,
    arch: Arch = "",
    host: Annotated[str, typer.Option(help="Where to listen; others than 127.0.0.1 need tokens.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port to listen at; 0 takes a free one.")] = 8321,
    tokens: Annotated[
        Path | None,
        typer.Option(
            help="A file with a line `NAME TOKEN` for each client, or `NAME TOKEN tasks` for one that may send tasks. "
            "Default: the variable WARPSMITH_TOKENS, else no tokens.",
            show_default=False,
        ),
    ] = None,
    folder: Annotated[Path, typer.Option(help="Where requests and verdicts are kept.")] = Path("runs/serve"),
    places: Annotated[int, typer.Option(min=1, help="Requests of one client that may wait for a verdict.")] = 1024,
    per_minute: Annotated[int, typer.Option(min=1, help="Requests of one client in a minute.")] = 6000,
    queue: Annotated[int, typer.Option(min=1, help="Requests of all clients that may wait.")] = 20_000,
    keep: Annotated[int, typer.Option(min=1, help="Verdicts that are kept, the newest.")] = 1_000_000,
) -> None:
    """Serve verdicts over HTTP: a task and a program in, a verdict out. See docs/guides/other-trainers.md."""
    from actors.pool_records import PoolExhausted
    from learners.room import disk_full, is_full
    from orchestration.serving.clients import Clients, Limits, process_tokens
    from orchestration.serving.service import ServiceFailed
    from orchestration.serving.start import Address
    from orchestration.serving.start import serve as start

    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    try:
        settings = _configuration([config, *(overrides or [])], arch)
        clients = Clients(process_tokens(tokens), Limits(places, per_minute, queue))
        with open_to_runners():
            folder.mkdir(parents=True, exist_ok=True)
            warn_if_closed(folder)
            start(settings, Address(host, port), folder, clients, keep, lambda url: _announce(url, settings))
    except (PoolExhausted, TimeoutError, ServiceFailed) as error:
        raise refuse(f"{error}; {_AGAIN}", STOPPED) from None
    except OSError as error:
        shown = disk_full(str(folder), error) if is_full(error) else error
        raise refuse(f"{shown}; {_AGAIN}", STOPPED) from None


def _configuration(words: list[str], arch: str) -> RunConfig:
    """The configuration of a file, or the defaults, with overrides. Raises ConfigError."""
    from configs.load import load_config, parse_config
    from orchestration.commands.machine import machine_arch

    words = [word for word in words if word]
    file = words.pop(0) if words and "=" not in words[0] else ""
    if arch:
        words.append(f"evaluator.arch={arch}")
    settings = load_config(file, words) if file else parse_config("name: serve\n", "warpsmith serve", words).config
    if settings.evaluator.arch == "auto":
        settings.evaluator.arch = machine_arch()
    return settings


def _announce(url: str, settings: RunConfig) -> None:
    evaluator = settings.evaluator
    print(f"verdicts of {evaluator.workers} evaluator(s) on {evaluator.arch} at {url}", flush=True)

"""The evaluator that the options of a command mean."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from configs.cache_folder import cache_folder
from orchestration.commands.options import parse_baselines, parse_words
from orchestration.commands.refusal import refuse, with_remedy
from orchestration.commands.store import open_to_runners, warn_if_closed

if TYPE_CHECKING:
    from evaluators.evaluator import Evaluator
    from evaluators.host.device import Device

_Work = TypeVar("_Work")


@contextmanager
def opened_evaluator(
    arch: str,
    preset: str,
    baselines: str,
    strict: str,
    require_containment: str,
    audit: Path | None,
    store: Path | None,
    read_work: Callable[[Device], _Work],
    *,
    require_shapes: bool = False,
) -> Iterator[tuple[Evaluator, _Work]]:
    """An evaluator over `store`, by default the user's cache, whose processes end with the block, and what `read_work`
    returns for its device. Refuses options that do not fit, a GPU that cannot be opened, and work that cannot be read,
    before anything is written."""
    from evaluators.audit.marks import read_marks
    from evaluators.evaluator import Evaluator
    from evaluators.host.open_device import open_device
    from orchestration.commands.second_opinion import make_confirm

    folder = store or cache_folder()
    with open_to_runners():
        try:
            device = open_device(arch)
            work = read_work(device)
            evaluator = Evaluator(
                device.arch,
                preset=preset,
                baselines=parse_baselines(baselines, device.arch),
                require_shapes=require_shapes,
                strict=strict,
                require_containment=parse_words(require_containment),
                confirm=make_confirm(device, folder, strict),
                store=folder,
                marks=read_marks(audit) if audit else (),
            )
        except (ValueError, OSError, ImportError) as error:
            raise refuse(with_remedy(error)) from None
        with evaluator:
            warn_if_closed(folder)
            yield evaluator, work

"""Further architectures on which programs are judged, a part of `configs.schema`. Imports neither torch nor ray."""

from __future__ import annotations

from dataclasses import dataclass, field

from configs.fields import bounded, one_of


@dataclass
class ArchConfig:
    """An architecture beside `evaluator.arch`: `cpu`, or a GPU by Ray's accelerator name (`A100`). Its evaluators and
    builders take everything else from `evaluator`."""

    workers: int = bounded(1, 1)  # evaluators; on GPUs each has a GPU of this type
    builders: int = bounded(1, 1)  # build workers, on CPUs
    # Share of the right programs that are judged here, too. Below 1, they are drawn by their digests, and show
    # portability alone.
    share: float = bounded(0.1, 0.0, 1.0)
    # Minutes without a program after which an evaluator ends, and gives its GPU back. It starts when programs wait, and
    # not before, so a cluster that scales has none of these GPUs meanwhile. 0: evaluators start with the run and stay.
    idle_minutes: float = bounded(0.0, 0.0)
    capability: str = ""  # compute capability to build for (`8.0`); empty takes the known one of the architecture


@dataclass
class EvaluationConfig:
    """On which architectures programs are judged beside `evaluator.arch` (docs/guides/architectures.md)."""

    archs: dict[str, ArchConfig] = field(default_factory=dict)  # by name
    # The reward of a policy's program. `first`: that of its verdict on `evaluator.arch`. `mean`, `worst`: the mean or
    # the lowest of its rewards there and on each of `archs` whose share is 1. On these, every program is judged, and
    # one that fails has the reward 0 there.
    reward: str = one_of("first", "first", "mean", "worst")

"""The prompt of a step, and its result."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from evaluators.records import Candidate, Verdict
from learners.records import Rollout


@dataclass(frozen=True)
class Prompt:
    """One prompt on a task. Its responses form the group of that name; a step renames a group that it has already.

    `ids`: token ids. `reference`: the program that is to be rewritten. `shown`: the digests of the exemplars, in their
    order. `fastest`: the speed-up of the fastest exemplar, or of the reference, which is 1. `speedups`: of the
    exemplars, as the prompt prints them; None for those that it shows without. `repairs`: the digest of the failing
    program that a repair turn shows, empty in other prompts.
    """

    task_id: str
    group: str
    text: str
    ids: tuple[int, ...]
    reference: str = ""
    shown: tuple[str, ...] = ()
    fastest: float = 1.0
    speedups: tuple[float | None, ...] = ()
    repairs: str = ""


class Verdicts(dict[str, Verdict]):
    """The verdicts of a step by digest: on `evaluator.arch` as its items, and `elsewhere`, by further architecture."""

    def __init__(
        self,
        first: Mapping[str, Verdict] | Iterable[tuple[str, Verdict]] = (),
        elsewhere: Mapping[str, dict[str, Verdict]] | None = None,
    ) -> None:
        super().__init__(first)
        self.elsewhere: dict[str, dict[str, Verdict]] = dict(elsewhere or {})

    def put(self, verdict: Verdict, arch: str = "") -> None:
        """Adds a verdict. `arch`: a further architecture, empty for `evaluator.arch`."""
        of_arch = self.elsewhere.setdefault(arch, {}) if arch else self
        of_arch[verdict.candidate] = verdict

    def of(self, digests: Collection[str]) -> Verdicts:
        """Those on these programs, in their order."""
        elsewhere = {
            arch: {digest: of_arch[digest] for digest in digests if digest in of_arch}
            for arch, of_arch in sorted(self.elsewhere.items())
        }
        return Verdicts({digest: self[digest] for digest in digests if digest in self}, elsewhere)

    def everywhere(self) -> list[Verdict]:
        """All of them."""
        return [*self.values(), *(verdict for of_arch in self.elsewhere.values() for verdict in of_arch.values())]


def verdicts_over(verdicts: Mapping[str, Verdict], digest: str, archs: Iterable[str]) -> list[Verdict]:
    """A program's verdicts: the one on `evaluator.arch`, and those that it has on these further architectures. Programs
    that no policy sampled have none there."""
    elsewhere = verdicts.elsewhere if isinstance(verdicts, Verdicts) else {}
    further = [elsewhere[arch][digest] for arch in archs if digest in elsewhere.get(arch, {})]
    return [verdicts[digest], *further]


@dataclass
class StepResult:
    """The result of a step: rollouts without rewards, their candidates and verdicts by digest, metrics by name."""

    rollouts: list[Rollout] = field(default_factory=list)
    candidates: dict[str, Candidate] = field(default_factory=dict)
    verdicts: Verdicts = field(default_factory=Verdicts)
    metrics: dict[str, float] = field(default_factory=dict)

"""Programs on further architectures, beside `evaluator.arch`: all of them for a reward over several, a share of the
right ones for portability.

Each architecture has a `Judging` of its own, with its own queues, its own best speed-ups and its own verdicts. Which
programs are drawn depends on their digests alone, so a run that is resumed draws the same. Nothing here may be called
from two threads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from actors.pool import ActorPool
from evaluators.records import Candidate, Verdict, digest_of
from orchestration.step.gathering import Gathering
from orchestration.step.judging import Judging

_DRAWS = float(1 << 64)  # a digest has 64 bits


class Elsewhere:
    """`counted`: the architectures on which every program of the policy is judged. `sampled`: the others, each with the
    share of the right programs that are judged there."""

    def __init__(
        self,
        counted: Mapping[str, Judging] | None = None,
        sampled: Mapping[str, tuple[Judging, float]] | None = None,
    ) -> None:
        self._counted, self._sampled = dict(counted or {}), dict(sampled or {})
        self.judgings: dict[str, Judging] = {
            **self._counted,
            **{arch: judging for arch, (judging, _) in self._sampled.items()},
        }

    @property
    def pools(self) -> list[ActorPool]:
        """The builders and the evaluators of all of them."""
        return [pool for each in self.judgings.values() for pool in (each.builders, each.evaluators)]

    @property
    def pending(self) -> int:
        """Candidates that wait for verdicts for a reward, on the architecture where most of them wait."""
        return max((judging.pending for judging in self._counted.values()), default=0)

    @property
    def moves(self) -> int:
        """How much has happened so far. For any thread."""
        return sum(judging.moves for judging in self.judgings.values())

    def propose(self, candidate: Candidate, gathering: Gathering) -> None:
        """Sends a response's program to every architecture that its reward is over."""
        for judging in self._counted.values():
            judging.propose(candidate, gathering)

    def follow(self, candidate: Candidate, verdict: Verdict, gathering: Gathering) -> None:
        """Hears the verdict on `evaluator.arch`, and sends a right program on to the architectures that it is drawn
        for. Programs that no policy has sampled are left out."""
        if not (gathering.samples and verdict.succeeded):
            return
        for arch, (judging, share) in self._sampled.items():
            if is_drawn(candidate.digest, arch, share):
                judging.propose(candidate, gathering)

    def judge_all(self, candidates: Iterable[Candidate], gathering: Gathering) -> None:
        """Sends programs to every architecture, whatever is drawn."""
        for candidate in candidates:
            for judging in self.judgings.values():
                judging.propose(candidate, gathering)

    def advance(self) -> bool:
        """Passes on the results of all pools; returns whether there were any. Never waits. Raises PoolExhausted."""
        moved = [judging.advance() for judging in self.judgings.values()]
        return any(moved)

    def give_up(self, awaited: Iterable[tuple[str, str]], gathering: Gathering) -> None:
        """Ends a step's wait for these candidates, each a digest and an architecture."""
        by_arch: dict[str, set[str]] = {}
        for digest, arch in awaited:
            by_arch.setdefault(arch, set()).add(digest)
        for arch, digests in by_arch.items():
            self.judgings[arch].give_up(digests, gathering)


def is_drawn(digest: str, arch: str, share: float) -> bool:
    """Whether a program belongs to the share that is judged on an architecture. A larger share takes none back."""
    return int(digest_of(f"{arch} {digest}"), 16) / _DRAWS < share

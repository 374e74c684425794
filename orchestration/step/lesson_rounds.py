"""Asks teachers about tasks until enough of their programs are right (CUDA-L1 section 2.2).

Each teacher is asked about each task in rounds of its own, so that none waits for the answers or verdicts of others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from configs.schema import SftConfig
from evaluators.records import Candidate, Task
from orchestration.step.endpoints import EndpointTeacher
from orchestration.step.proposals import Proposal, Teacher
from orchestration.step.usage import Usage

_Place = tuple[int, int, int]
"""Round, number of the course, and number in the round: the order in which programs are asked for."""


@dataclass
class _Course:
    """What one teacher is asked about one task. `teacher`: its number. `unjudged`: proposals of the round without a
    verdict."""

    teacher: int
    stream: Iterator[Proposal | Future[Proposal | None]]
    round: int = -1
    tries: int = 0
    successes: int = 0
    unjudged: int = 0
    coming: list[tuple[_Place, Future[Proposal | None]]] = field(default_factory=list)
    has_ended: bool = False


class TeacherRounds:
    """Asks every teacher about every task, until `sft.successes` of its programs are right, or `sft.tries` are used up.

    `prompt`: the prompt for a task. Use as a context manager; leaving it gives up what endpoints still owe.
    """

    def __init__(
        self, tasks: Sequence[Task], teachers: Sequence[Teacher], config: SftConfig, prompt: Callable[[Task], str]
    ) -> None:
        self._config = config
        self._teachers = teachers
        self._endpoints = [teacher for teacher in teachers if isinstance(teacher, EndpointTeacher)]
        self._courses = [
            _Course(number, teacher.proposals(task, text))
            for task, text in ((task, prompt(task)) for task in tasks)
            for number, teacher in enumerate(teachers)
        ]
        self._proposed: dict[_Place, tuple[Candidate, Proposal]] = {}
        self._waiting: dict[str, list[_Course]] = defaultdict(list)  # by the digest of a program without a verdict
        self._right: dict[str, bool] = {}

    def __enter__(self) -> TeacherRounds:
        return self

    def __exit__(self, *_: object) -> None:
        for teacher in self._endpoints:
            teacher.close()

    def arrived(self) -> list[Candidate] | None:
        """The programs that came since the last call, None once there will be no other. Never waits.

        A program that has come before is left out. Raises TeacherError if a teacher does not answer, and OSError if an
        answer cannot be kept.
        """
        found: list[Candidate] = []
        for number, course in enumerate(self._courses):
            if course.has_ended:
                continue
            proposals = self._answered(course)
            if not (course.coming or proposals or course.unjudged):
                proposals = self._ask(course, number)
            found += self._candidates(course, proposals)
        return found if found or not all(course.has_ended for course in self._courses) else None

    def judged(self, digest: str, *, success: bool) -> None:
        """Takes whether a program is right, which counts for all who proposed it."""
        self._right[digest] = success
        for course in self._waiting.pop(digest, ()):
            course.unjudged -= 1
            course.successes += success

    def end(self) -> int:
        """Asks for nothing more. What has no verdict by now counts as never proposed; returns how many programs that
        are."""
        judged = {place: each for place, each in self._proposed.items() if each[0].digest in self._right}
        left, self._proposed = len(self._proposed) - len(judged), judged
        for course in self._courses:
            course.has_ended = True
        return left

    def in_order(self) -> list[tuple[Candidate, Proposal]]:
        """All proposals, in the order in which they were asked for, whatever came first."""
        return [self._proposed[place] for place in sorted(self._proposed)]

    def by_teacher(self) -> list[tuple[Teacher, list[tuple[Candidate, Proposal]]]]:
        """Every teacher with its proposals, task by task, in the order in which they were asked for."""
        found: list[tuple[Teacher, list[tuple[Candidate, Proposal]]]] = [(teacher, []) for teacher in self._teachers]
        for place in sorted(self._proposed, key=lambda place: (place[1], place)):
            found[self._courses[place[1]].teacher][1].append(self._proposed[place])
        return found

    def figures(self) -> dict[str, float]:
        """What endpoints were asked for, as metrics; none without endpoints."""
        if not self._endpoints:
            return {}
        figures = sum((teacher.usage for teacher in self._endpoints), Usage()).counts()
        costs = [cost for teacher in self._endpoints if (cost := teacher.cost) is not None]
        return figures | ({"teacher/cost": sum(costs)} if costs else {})

    def _answered(self, course: _Course) -> list[tuple[_Place, Proposal]]:
        """What a course has waited for. A lost answer is its last: the others would not come either."""
        places = [place for place, future in course.coming if future.done()]
        done = [(place, future.result()) for place, future in course.coming if place in places]
        course.coming = [(place, future) for place, future in course.coming if place not in places]
        if any(proposal is None for _, proposal in done):
            course.tries = self._config.tries
        return [(place, proposal) for place, proposal in done if proposal is not None]

    def _ask(self, course: _Course, number: int) -> list[tuple[_Place, Proposal]]:
        """Begins the next round of a course, with as many proposals as may be needed; returns those that are there."""
        needed = min(self._config.successes - course.successes, self._config.tries - course.tries)
        course.round += 1
        found: list[tuple[_Place, Proposal]] = []
        for index in range(needed):
            proposal = next(course.stream, None)
            if proposal is None:
                course.tries = self._config.tries
                break
            place = (course.round, number, index)
            course.tries += 1
            if isinstance(proposal, Future):
                course.coming.append((place, proposal))
            else:
                found.append((place, proposal))
        course.has_ended = not found and not course.coming
        return found

    def _candidates(self, course: _Course, proposals: list[tuple[_Place, Proposal]]) -> list[Candidate]:
        """The proposals as candidates, without those that have come before."""
        found = []
        for place, proposal in proposals:
            candidate = Candidate.propose(proposal.task_id, proposal.source, proposal.author)
            self._proposed[place] = candidate, proposal
            if candidate.digest in self._right:
                course.successes += self._right[candidate.digest]
                continue
            course.unjudged += 1
            if candidate.digest not in self._waiting:
                found.append(candidate)
            self._waiting[candidate.digest].append(course)
        return found

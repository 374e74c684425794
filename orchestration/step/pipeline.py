"""From prompts to judged rollouts, streamed: each response is built and evaluated as soon as it is complete.

Generation, building and evaluation run side by side in their pools, for several steps at once where a phase asks ahead;
an identical candidate is judged once in a run. Nothing here may be called from two threads.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from actors.builder import BuildRequest
from actors.evaluator import EvaluationRequest
from actors.generation import GenerationRequest
from actors.pool import ActorPool, wait_any
from actors.pool_records import PoolExhausted, PoolFailure
from configs.schema import RolloutConfig
from evaluators.compile.hints import needs_build
from evaluators.failures import Unbuilt
from evaluators.records import Candidate, Outcome, Task, Verdict
from orchestration.fleet.placement import ENGINE, EVALUATOR
from orchestration.fleet.turns import Turns
from orchestration.step.gathering import Gathering
from orchestration.step.records import Prompt, StepResult
from orchestration.step.review import Reviewer

_log = logging.getLogger(__name__)
_POLL_SECONDS = 0.02

Result = TypeVar("Result")


class Pipeline:
    """Moves work between the pools of one run. `verdicts` holds what the run has judged, by (candidate, preset)."""

    def __init__(
        self,
        tasks: Iterable[Task],
        engines: ActorPool,
        builders: ActorPool,
        evaluators: ActorPool,
        rollout: RolloutConfig,
        reviewer: Reviewer,
        max_backlog: int = 1024,
        on_progress: Callable[[dict[str, float]], None] | None = None,
        turns: Turns | None = None,
    ) -> None:
        self.tasks = {task.id: task for task in tasks}
        self.engines, self.builders, self.evaluators = engines, builders, evaluators
        self.rollout = rollout
        self.reviewer = reviewer
        self.max_backlog = max_backlog
        self.verdicts: dict[tuple[str, str], Verdict] = {}
        self.on_progress = on_progress or (lambda _: None)
        self._turns = turns
        self._looks = turns is not None and turns.evaluators_wait
        self._under_way: list[Gathering] = []  # in the order in which they were begun
        self._requests: dict[str, Gathering] = {}  # those who asked the engines, by the request's key
        self._judging: dict[tuple[str, str], list[Gathering]] = {}  # those who wait for a verdict
        self._numbers = itertools.count()

    def has_room(self) -> bool:
        """Whether the engines can begin another group, and those who judge what comes of it are not too far behind."""
        return not self.engines.queued and self.builders.pending + self.evaluators.pending < self.max_backlog

    def run(self, gathering: Gathering) -> StepResult:
        """Samples the responses that a gathering asks for and judges what they propose. What its `on_group` gives for a
        group is sampled, too, while the others are still under way.

        What is lost with an actor for good (a group, a verdict) is left out, or judged as `infra`; what is missing at
        its deadline is given up. Raises PoolExhausted when a pool has no actor left, since nothing could be said of any
        candidate then, or when every response is lost: an engine may die of whatever it is asked.
        """
        return self.finish(self.begin(gathering))

    def evaluate(self, candidates: Sequence[Candidate], preset: str) -> dict[str, Verdict]:
        """Verdicts on candidates that are there already (a teacher's), by digest."""
        gathering = self.begin(Gathering((), samples=0, temperature=0.0, preset=preset))
        for candidate in {one.digest: one for one in candidates}.values():
            self._propose(candidate, gathering)
        return self.finish(gathering).verdicts

    def begin(self, gathering: Gathering) -> Gathering:
        """Begins with a step, behind those begun before: `finish` waits for it, `meanwhile` goes on with it."""
        self._under_way.append(gathering)
        self._ask()
        return gathering

    def finish(self, gathering: Gathering) -> StepResult:
        """Waits for all of it. Raises PoolExhausted."""
        while not gathering.done:
            self.pump()
        self._under_way.remove(gathering)
        if gathering.came_to_nothing:
            lost = gathering.lost
            raise PoolExhausted(f"none of the step's {len(lost)} requests was answered, the last for: {lost[-1]}")
        return gathering.finish()

    def meanwhile(self, call: Callable[..., Result], *arguments: Any) -> Result:
        """The result of a call that takes long, in a thread of its own where something is under way, which goes on."""
        if not self._under_way:
            return call(*arguments)
        called: Future[Result] = Future()

        def run() -> None:
            try:
                called.set_result(call(*arguments))
            except BaseException as error:  # noqa: BLE001 - raised where it is waited for
                called.set_exception(error)

        threading.Thread(target=run, name="meanwhile", daemon=True).start()
        self.pump_until(called.done)
        return called.result()

    def give_turn(self, role: str) -> None:
        """Passes the turn on GPUs that roles share, once what an evaluator has begun with is judged."""
        if self._turns is None:
            return
        if self._turns.evaluators_wait and self._turns.holder == EVALUATOR:
            self.evaluators.pause()
            self.pump_until(lambda: not self.evaluators.is_busy)
        self._turns.give_to(role)

    def pump_until(self, done: Callable[[], bool]) -> None:
        """Goes on with what is under way until `done()`."""
        while not done():
            self.pump()

    def forget(self) -> None:
        """Gives up everything that is under way: nobody will ask for it."""
        for gathering in self._under_way:
            self._give_up(gathering)
        self._under_way.clear()

    def pump(self) -> None:
        """Passes on what the pools have finished; waits a moment where that is nothing."""
        self._ask()
        self._take_turns()
        moved = [self._generated(*answer) for answer in self.engines.poll(0.0)]
        moved += [self._built(*answer) for answer in self.builders.poll(0.0)]
        moved += [self._evaluated(*answer) for answer in self.evaluators.poll(0.0)]
        moved += [self._ruled(*ruling) for ruling in self.reviewer.poll()]
        for gathering in self._under_way:
            gathering.settle()
            if gathering.is_late and not gathering.done:
                self._give_up(gathering)
        if self._under_way:
            self.on_progress(self._under_way[0].rates())
        if not moved:
            wait_any((self.engines, self.builders, self.evaluators), _POLL_SECONDS)

    def _ask(self) -> None:
        """Gives the engines what they have room for, the oldest step's prompts first."""
        for gathering in self._under_way:
            while gathering.waiting and self.has_room():
                prompt = gathering.waiting.popleft()
                requests = list(self._requests_for(prompt, gathering))
                gathering.sent([one.key for one in requests], prompt, requests[0].n)
                for request in requests:
                    self._requests[request.key] = gathering
                    self.engines.submit(request, "generate")

    def _take_turns(self) -> None:
        """Where engines, builders and evaluators share GPUs, evaluators have their turn once the others have nothing to
        do, and those once the evaluators have not."""
        turns = self._turns
        if turns is None or not turns.evaluators_wait or not self._under_way:
            return
        to_ask = self.has_room() and any(gathering.waiting for gathering in self._under_way)
        others = self.engines.pending or self.builders.pending or to_ask
        if turns.holder == EVALUATOR:
            if others and not self.evaluators.pending:
                turns.give_to(ENGINE)
        elif self.evaluators.pending and not others:
            turns.give_to(EVALUATOR)

    def _requests_for(self, prompt: Prompt, gathering: Gathering) -> Iterator[GenerationRequest]:
        """One a response, so that each comes as soon as it is complete; greedy ones are all the same."""
        rollout, greedy = self.rollout, gathering.temperature == 0.0
        name = f"{next(self._numbers)}/{prompt.group}"
        for index in range(1 if greedy else gathering.samples):
            yield GenerationRequest(
                f"{name}#{index}",
                prompt.ids,
                gathering.samples if greedy else 1,
                rollout.max_tokens,
                gathering.temperature,
                rollout.top_p,
                stop_after_code=rollout.stop_after_code,
                group=name,
            )

    def _generated(self, request: GenerationRequest, outcome: Any) -> None:
        """A response, or an answer to what a reward checker was asked."""
        failed = _failed(outcome)
        if self.reviewer.take(request.key, None if failed else outcome):
            return
        if failed:
            _log.warning("response %s is lost: %s", request.key, outcome.error)
        gathering = self._requests.pop(request.key, None)
        if gathering is not None:
            if failed:
                gathering.lost.append(str(outcome.error))
            for candidate in gathering.received(request.key, None if failed else outcome):
                self._propose(candidate, gathering)

    def _propose(self, candidate: Candidate, gathering: Gathering) -> None:
        """Sends a program on its way, unless it has been judged, or is being."""
        key = (candidate.digest, gathering.preset)
        known = self.verdicts.get(key)
        if known is not None:
            self.verdicts[key] = known = self.reviewer.known(known)
        gathering.proposed(candidate, known)
        if known is not None:
            return
        others = self._judging.get(key)
        if others is not None:  # perhaps nobody, where who asked for it has given up
            others.append(gathering)
            return
        self._judging[key] = [gathering]
        task = self.tasks[candidate.task_id]
        if self._looks or needs_build(candidate.source):
            self.builders.submit(BuildRequest(task, candidate, preset=gathering.preset), "prepare")
        else:
            self.evaluators.submit(EvaluationRequest(task, candidate, gathering.preset), "evaluate")

    def _built(self, request: BuildRequest, outcome: Any) -> None:
        """What was built goes on to the evaluators, unless it has been judged by a look."""
        if isinstance(outcome, Unbuilt):
            self._build_more(request, outcome)
            return
        if _failed(outcome):
            outcome = _infra(request, str(outcome.error))
        if isinstance(outcome, Verdict):
            self._judged(request.candidate, outcome)
            return
        task, candidate = request.task, request.candidate
        judged = EvaluationRequest(task, candidate, request.preset, outcome, request.also, passed_look=self._looks)
        self.evaluators.submit(judged, "evaluate")

    def _build_more(self, request: BuildRequest | EvaluationRequest, missing: Unbuilt) -> None:
        """What a program turned out to lack as it ran: ahead of all others, since somebody has begun with it."""
        also = (*request.also, missing.request)
        rebuild = BuildRequest(request.task, request.candidate, also, request.preset)
        self.builders.submit(rebuild, "prepare", priority=-1)

    def _evaluated(self, request: EvaluationRequest, outcome: Any) -> None:
        if isinstance(outcome, Unbuilt):
            self._build_more(request, outcome)
            return
        self._judged(request.candidate, _infra(request, str(outcome.error)) if _failed(outcome) else outcome)

    def _judged(self, candidate: Candidate, verdict: Verdict) -> None:
        """A fresh verdict, which is looked at again where that is needed."""
        waiting = self._judging.get((candidate.digest, verdict.evaluator["preset"]), ())
        for gathering in waiting[:1]:
            gathering.measured += 1
        self.reviewer.submit(candidate, verdict)

    def _ruled(self, candidate: Candidate, verdict: Verdict) -> None:
        key = (candidate.digest, verdict.evaluator["preset"])
        if verdict.outcome is not Outcome.INFRA:  # ours: to be tried again when it is proposed again
            self.verdicts[key] = verdict
        for gathering in self._judging.pop(key, ()):
            gathering.judged(verdict)

    def _give_up(self, gathering: Gathering) -> None:
        """Ends a gathering with what it has: requests are taken back, and candidates that nobody has begun to judge."""
        requests, digests = gathering.give_up()
        for key in requests:
            self._requests.pop(key, None)
        self.engines.withdraw(lambda item: item.key in requests)
        unwanted = set()
        for digest in digests:
            key = (digest, gathering.preset)
            self._judging[key].remove(gathering)
            if not self._judging[key]:
                unwanted.add(key)
        withdrawn: set[tuple[str, str]] = set()
        for pool in (self.builders, self.evaluators):
            taken = pool.withdraw(lambda item: (item.candidate.digest, item.preset) in unwanted, queued_only=True)
            withdrawn |= {(item.candidate.digest, item.preset) for item in taken}
        for key in withdrawn:
            del self._judging[key]


def _failed(outcome: Any) -> bool:
    """Whether an item came to nothing. Raises PoolExhausted where every other item would, too."""
    if isinstance(outcome, PoolFailure) and isinstance(outcome.error, PoolExhausted):
        raise outcome.error
    return isinstance(outcome, PoolFailure)


def _infra(request: BuildRequest | EvaluationRequest, message: str) -> Verdict:
    """Our own failure to judge a candidate."""
    _log.warning("%s: candidate %s could not be judged: %s", request.task.id, request.candidate.digest, message)
    about = {"preset": request.preset}
    return Verdict(request.candidate.digest, request.task.id, "", Outcome.INFRA, message[:2000], evaluator=about)

"""From prompts to judged rollouts, streamed: each response is built and evaluated as soon as it is complete.

Generation, building and evaluation run side by side in their pools, for several steps at once if a phase asks ahead; an
identical candidate is judged once in a run. Nothing here may be called from two threads.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from actors.generation import GenerationRequest
from actors.pool import ActorPool, wait_any
from actors.pool_records import PoolExhausted
from configs.schema import RolloutConfig
from evaluators.records import Candidate, Task, Verdict
from learners.records import Rollout
from orchestration.fleet.placement import EVALUATOR
from orchestration.fleet.turns import Turns
from orchestration.run.set_aside import SetAside
from orchestration.step.background import in_background
from orchestration.step.elsewhere import Elsewhere
from orchestration.step.endpoint_engines import EndpointEngines, NoEngines
from orchestration.step.gathering import Gathering
from orchestration.step.judging import Judging, has_failed
from orchestration.step.known import RunVerdicts
from orchestration.step.records import Prompt, StepResult
from orchestration.step.review import Reviewer

_log = logging.getLogger(__name__)
_POLL_SECONDS = 0.02
MAX_BACKLOG = 1024
"""Candidates to be built or judged, beyond which no other group is sampled; more if evaluators are many."""
BACKLOG_OF_ONE = 8
"""The same for each evaluator. Twice as many as must wait for each, for it to be given one ahead."""

Result = TypeVar("Result")


class Pipeline:
    """Moves prompts through the rollout engines of a run, and the candidates in the responses through `judging`.

    No group is sampled while `max_backlog` candidates wait for their verdicts. `on_progress` gets the rates of the
    oldest step. `turns`: whose turn it is on GPUs that roles share. `cpu_look`, `remeasure_best`, `known`, `store`,
    `set_aside`, `confirms_jumps`: see `Judging`. `elsewhere`: the further architectures.
    """

    def __init__(
        self,
        tasks: Iterable[Task],
        engines: ActorPool | EndpointEngines | NoEngines,
        builders: ActorPool,
        evaluators: ActorPool,
        rollout: RolloutConfig,
        reviewer: Reviewer,
        on_progress: Callable[[dict[str, float]], None] | None = None,
        turns: Turns | None = None,
        remeasure_best: int = 0,
        cpu_look: bool = False,
        known: RunVerdicts | None = None,
        store: Path | None = None,
        set_aside: SetAside | None = None,
        elsewhere: Elsewhere | None = None,
        *,
        confirms_jumps: bool = False,
    ) -> None:
        builders_look = turns is not None and turns.evaluators_wait
        self.judging = Judging(
            tasks,
            builders,
            evaluators,
            reviewer,
            builders_look=builders_look,
            cpu_look=cpu_look,
            remeasure_best=remeasure_best,
            confirms_jumps=confirms_jumps,
            known=known,
            store=store,
            set_aside=set_aside,
        )
        self.elsewhere = elsewhere or Elsewhere()
        self.judging.on_verdict = self.elsewhere.follow
        self.engines = engines
        self.rollout = rollout
        self.max_backlog = max(MAX_BACKLOG, BACKLOG_OF_ONE * len(evaluators.members))
        self.on_progress = on_progress or (lambda _: None)
        self._turns = turns
        self._under_way: list[Gathering] = []  # in the order in which they were begun
        self._requests: dict[str, Gathering] = {}  # by the key of each request that the engines have
        self._numbers = itertools.count()

    def run(self, gathering: Gathering) -> StepResult:
        """Samples the responses that a gathering asks for, and judges the programs in them.

        A further prompt that its `on_group` gives is sampled while the others are still under way. A group that is lost
        with its engine is left out, and a candidate whose verdict is lost is judged as `infra`. At the gathering's
        deadline everything that is missing is given up. Raises PoolExhausted if a pool has no actor left, since no
        candidate could be judged then, or if every request failed, since engines then die of every request.
        """
        return self.finish(self.begin(gathering))

    def evaluate(self, candidates: Sequence[Candidate], preset: str) -> dict[str, Verdict]:
        """Verdicts on candidates that exist already (a teacher's), by digest."""
        gathering = self.begin(Gathering((), samples=0, temperature=0.0, preset=preset))
        for candidate in {candidate.digest: candidate for candidate in candidates}.values():
            self.judging.propose(candidate, gathering)
        return self.finish(gathering).verdicts

    def evaluate_elsewhere(self, candidates: Sequence[Candidate], preset: str) -> StepResult:
        """Verdicts on candidates on every further architecture."""
        gathering = self.begin(Gathering((), samples=0, temperature=0.0, preset=preset))
        self.elsewhere.judge_all(candidates, gathering)
        return self.finish(gathering)

    def evaluate_arriving(
        self, arrived: Callable[[], Sequence[Candidate] | None], preset: str
    ) -> Iterator[tuple[Candidate, Verdict]]:
        """Verdicts on candidates that come while others are judged, as they are reached; one for each distinct one.

        `arrived`: the candidates that came since its last call, None once there will be no other. It is called all the
        time, and must not wait. Raises what it raises, and PoolExhausted (see `run`).
        """
        gathering = self.begin(Gathering((), samples=0, temperature=0.0, preset=preset))
        result, given = gathering.result, 0
        try:
            while (candidates := arrived()) is not None:
                for candidate in candidates:
                    if candidate.digest not in result.candidates:
                        self.judging.propose(candidate, gathering)
                fresh = list(itertools.islice(result.verdicts.values(), given, None))  # verdicts are only added
                given += len(fresh)
                yield from ((result.candidates[verdict.candidate], verdict) for verdict in fresh)
                if not fresh:
                    self.pump()
        finally:
            if gathering in self._under_way:
                self._give_up(gathering)
                self._under_way.remove(gathering)

    def sample(
        self, prompts: Sequence[Prompt], samples: int, temperature: float, seed: Sequence[int] = ()
    ) -> list[Rollout]:
        """Responses to prompts, whose programs nobody judges. Raises PoolExhausted (see `run`)."""
        wanted = Gathering(prompts, samples=samples, temperature=temperature, preset="", seed=seed)
        return self.run(wanted).rollouts

    def begin(self, gathering: Gathering) -> Gathering:
        """Begins a step, behind those begun before: `finish` waits for it, `meanwhile` goes on with it."""
        self._under_way.append(gathering)
        self._send_prompts()
        return gathering

    def begin_again(self, gathering: Gathering, rollouts: Sequence[Rollout]) -> Gathering:
        """Begins a step without prompts, whose responses an earlier process has received."""
        self._under_way.append(gathering)
        for candidate in gathering.record_earlier(rollouts):
            self._propose(candidate, gathering)
        return gathering

    def finish(self, gathering: Gathering) -> StepResult:
        """Waits for all of a step. Raises PoolExhausted (see `run`)."""
        while not gathering.is_done:
            self.pump()
        self._under_way.remove(gathering)
        if gathering.has_only_failures:
            count, last = len(gathering.failures), gathering.failures[-1]
            raise PoolExhausted(f"none of the step's {count} requests was answered, the last because of: {last}")
        return gathering.finish()

    def meanwhile(self, call: Callable[..., Result], *arguments: Any) -> Result:
        """The result of a long call. If a step is under way, it goes on, and the call runs in a thread of its own."""
        if not self._under_way:
            return call(*arguments)
        called = in_background("meanwhile", call, *arguments)
        self.pump_until(called.done)
        return called.result()

    def give_turn(self, role: str) -> None:
        """Passes the turn on GPUs that roles share, after the verdicts that an evaluator has begun with."""
        if self._turns is None:
            return
        if self._turns.evaluators_wait and self._turns.holder == EVALUATOR:
            evaluators = self.judging.evaluators
            evaluators.pause()
            self.pump_until(lambda: not evaluators.load.is_busy)
        self._turns.give_to(role)

    def pump_until(self, done: Callable[[], bool]) -> None:
        """Goes on with all steps under way until `done()`."""
        while not done():
            self.pump()

    def describe(self) -> str:
        """What the steps under way wait for, in words. It may be called from another thread."""
        steps = [gathering.describe() for gathering in list(self._under_way)]
        return "; ".join(steps) or "no step is under way"

    def finish_responses(self) -> None:
        """Waits for the responses to all prompts of steps under way, and goes on with their verdicts meanwhile.

        So the engines' next weights sample none of them: which version samples a response depends on no speed.
        """
        self.pump_until(lambda: all(gathering.has_responses for gathering in self._under_way))

    def forget(self) -> None:
        """Gives up all steps under way: nobody will ask for them."""
        for gathering in self._under_way:
            self._give_up(gathering)
        self._under_way.clear()

    def pump(self) -> None:
        """Passes on the results of the pools; waits a moment if there are none."""
        self._send_prompts()
        if self._turns is not None and self._under_way:
            has_prompts = self._has_room() and any(gathering.waiting for gathering in self._under_way)
            self._turns.pass_on(has_prompts=has_prompts)
        answers = self.engines.poll(0.0)
        for request, outcome in answers:
            self._receive_responses(request, outcome)
        has_moved = any([self.judging.advance(), self.elsewhere.advance(), bool(answers)])
        for gathering in self._under_way:
            gathering.close_groups()
            if gathering.is_late and not gathering.is_done:
                self._give_up(gathering)
        if self._under_way:
            self.on_progress(self._under_way[0].rates())
        if not has_moved:
            pools = (self.judging.builders, self.judging.evaluators, *self.elsewhere.pools)
            engines = () if isinstance(self.engines, EndpointEngines | NoEngines) else (self.engines,)
            wait_any((*engines, *pools), _POLL_SECONDS)

    def _has_room(self) -> bool:
        """Whether the engines can begin another group, and its candidates would not wait too long for verdicts."""
        pending = max(self.judging.pending, self.elsewhere.pending)
        return not self.engines.queued and pending < self.max_backlog

    def _send_prompts(self) -> None:
        """Gives the engines the prompts that they have room for, those of the oldest step first."""
        for gathering in self._under_way:
            while gathering.waiting and self._has_room():
                prompt = gathering.waiting.popleft()
                requests = list(self._requests_for(prompt, gathering))
                gathering.record_requests([request.key for request in requests], prompt, requests[0].n)
                for request in requests:
                    self._requests[request.key] = gathering
                    self.engines.submit(request, "generate")

    def _requests_for(self, prompt: Prompt, gathering: Gathering) -> Iterator[GenerationRequest]:
        """A request for each response, so that each comes as soon as it is complete. Greedy responses are all the same,
        and need one request."""
        rollout, greedy = self.rollout, gathering.temperature == 0.0
        name = f"{next(self._numbers)}/{prompt.group}"
        text = prompt.text if isinstance(self.engines, EndpointEngines) else ""
        for index in range(1 if greedy else gathering.samples):
            yield GenerationRequest(
                f"{name}#{index}",
                prompt.ids,
                gathering.samples if greedy else 1,
                rollout.max_tokens,
                gathering.temperature,
                stop_after_code=rollout.stop_after_code,
                group=name,
                seed=gathering.seed_of(prompt.group, index),
                text=text,
            )

    def _receive_responses(self, request: GenerationRequest, outcome: Any) -> None:
        """Takes responses to a prompt, or to a question of the reward checker."""
        failed = has_failed(outcome)
        completions = None if failed else outcome
        if self.judging.reviewer.take(request.key, completions):
            return
        if failed:
            _log.warning("response %s is lost: %s", request.key, outcome.error)
        gathering = self._requests.pop(request.key, None)
        if gathering is not None:
            if failed:
                gathering.failures.append(str(outcome.error))
            for candidate in gathering.record_answer(request.key, completions):
                self._propose(candidate, gathering)

    def _propose(self, candidate: Candidate, gathering: Gathering) -> None:
        """Sends the program of a response to every architecture that its reward is over."""
        self.judging.propose(candidate, gathering)
        self.elsewhere.propose(candidate, gathering)

    def _give_up(self, gathering: Gathering) -> None:
        """Ends a step as it is: takes back its requests, and the candidates that no actor works on yet."""
        requests, awaited = gathering.give_up()
        for key in requests:
            self._requests.pop(key, None)
        self.engines.withdraw_keys(requests)
        self.judging.give_up([digest for digest, arch in awaited if not arch], gathering)
        self.elsewhere.give_up([each for each in awaited if each[1]], gathering)

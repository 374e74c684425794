"""The thread that moves a service's requests through the builders and the evaluators, and past the reviewer.

No other thread may use the pools while it runs.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from queue import Empty, SimpleQueue

from actors.pool import wait_any
from configs.load import ConfigError
from configs.schema import GuardConfig, RunConfig
from evaluators.guard.cases import HackCases
from evaluators.records import Candidate, Task, Verdict
from orchestration.fleet.arch_pools import ArchPools
from orchestration.run.set_aside import SetAside
from orchestration.run.storage import Storage
from orchestration.serving.ledger import Ledger
from orchestration.serving.records import Request, as_json
from orchestration.step.checker import POLICY, Background, EndpointChecker
from orchestration.step.gathering import Gathering
from orchestration.step.judging import Judging
from orchestration.step.known import RunVerdicts
from orchestration.step.quarantine import quarantine
from orchestration.step.review import Reviewer

_log = logging.getLogger(__name__)
_POLL_SECONDS, _IDLE_SECONDS = 0.02, 0.5

OnVerdict = Callable[[Request, Verdict, bytes], None]
"""Hears of each verdict, and of the same as JSON, in the judge's thread."""


def check_guard(guard: GuardConfig) -> None:
    """Raises ConfigError if the reward checker cannot be asked by a service."""
    if guard.enabled and guard.checker == POLICY:
        raise ConfigError("guard.checker: a service has no policy to ask; name an endpoint, or leave it empty")


class Judge:
    """Judges requests, at most `depth` at once, so that the others wait where their priorities count."""

    def __init__(
        self,
        config: RunConfig,
        tasks: Mapping[str, Task],
        pools: ArchPools,
        store: Path,
        *,
        cpu_look: bool,
    ) -> None:
        """`store`: the folder of the builders and evaluators; its parent keeps the evidence on programs that lost too
        many workers."""
        guard = config.guard
        self._background = None
        if guard.enabled and guard.checker:
            self._background = Background(EndpointChecker(guard), guard.checker_timeout)
        self._cases = HackCases(store / "hacks.parquet")
        self._references = {task.id: task.source for task in tasks.values()}
        self._digests = {task.id: task.digest for task in tasks.values()}
        self.reviewer = Reviewer(guard, self._cases, self._references, self._background)
        self._preset = config.evaluator.preset
        self._pools = pools
        self._judging = Judging(
            tasks.values(),
            pools.builders,
            pools.evaluators,
            self.reviewer,
            builders_look=False,
            cpu_look=cpu_look,
            remeasure_best=config.evaluator.remeasure_best,
            confirms_jumps=pools.confirms,
            known=_AskedBefore(),
            store=store,
            set_aside=SetAside(Storage.at(store.parent, "judged")),
        )
        self._judging.on_verdict = self._hear
        self.depth = 2 * (config.evaluator.workers + config.evaluator.builders)
        self._arrived: SimpleQueue[Request] = SimpleQueue()
        self._under_way: dict[Gathering, Request] = {}  # by what waits for its verdict
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="judge", daemon=True)

    @property
    def evaluators_ready(self) -> int:
        """How many evaluators can be given work. For any thread."""
        return self._pools.evaluators.members.ready

    def resume(self, ledger: Ledger, settings: str) -> None:
        """Takes over what the ledger believes under these settings, and what a person has decided since."""
        self.reviewer.believe_all(ledger.believed(settings, self._digests))
        for request_id, verdict in ledger.verdicts_on(self.reviewer.decided()):
            current = self.reviewer.review_again(verdict)
            if current is not verdict:
                ledger.settle(request_id, current, as_json(current)).result()

    def start(self, on_verdict: OnVerdict, on_failure: Callable[[Exception], None]) -> None:
        """Starts the thread. `on_failure` hears why it ended if nothing more can be judged."""
        self._on_verdict, self._on_failure = on_verdict, on_failure
        self._thread.start()

    def submit(self, request: Request) -> None:
        """Takes a request. For any thread."""
        self._arrived.put(request)

    def close(self) -> None:
        """Ends the thread. What is under way is given up."""
        self._ends.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._background is not None:
            self._background.close()

    def _run(self) -> None:
        try:
            while not self._ends.is_set():
                self._take(0.0 if self._under_way else _IDLE_SECONDS)
                if not self._judging.advance():
                    wait_any((self._pools.builders, self._pools.evaluators), _POLL_SECONDS if self._under_way else 0.0)
        except Exception as error:  # noqa: BLE001 - whatever it is, the service ends with it
            _log.debug("the judge ends", exc_info=True)
            self._on_failure(error)

    def _take(self, seconds: float) -> None:
        """Sends on what has arrived; waits so many seconds for the first."""
        try:
            request = self._arrived.get(timeout=seconds) if seconds else self._arrived.get_nowait()
            while True:
                gathering = Gathering((), samples=0, temperature=0.0, preset=self._preset)
                self._under_way[gathering] = request
                self._judging.propose(request.candidate, gathering, request.task)
                request = self._arrived.get_nowait()
        except Empty:
            return

    def _hear(self, candidate: Candidate, verdict: Verdict, gathering: Gathering) -> None:
        request = self._under_way.pop(gathering)
        quarantine(self._cases, {candidate.digest: candidate}, {candidate.digest: verdict}, "serve", self._references)
        self._on_verdict(request, verdict, as_json(verdict))


class _AskedBefore(RunVerdicts):
    """Knows no verdict: the ledger was asked before, and keeps them all."""

    def get(self, candidate: str, preset: str) -> Verdict | None:
        return None

    def put(self, verdict: Verdict) -> None:
        return None

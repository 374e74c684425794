"""Asks an endpoint about twenty tasks, for a test to kill. Arguments: the endpoint, the file of answers."""

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))

from evaluators.records import Candidate, Outcome, Verdict
from tests.orchestration.phases.phase_context import judged
from tests.orchestration.phases.test_asking_endpoints import phase_of


class Told:
    url = sys.argv[1]


def judge(one: Candidate) -> Verdict:
    return judged(one.task_id, one.source, Outcome.OK, 2.0)[1]


endpoint: Any = Told()
phase_of(endpoint, Path(sys.argv[2]).parent, judge, tasks=20, concurrency=3).gather(0)

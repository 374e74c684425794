"""After exploits that attack later programs, an evaluator judges an honest and a wrong program as a fresh one does."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, field

import pytest

from configs.schema import LimitsConfig
from evaluators.evaluator import Evaluator
from evaluators.gauntlet import discover
from evaluators.gauntlet.programs import GauntletProgram
from evaluators.records import Outcome, Task

FAMILIES = ("poisoning", "forging", "deferred", "patching", "clocks")
REFERENCE = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        y = x
        for _ in range(3):
            y = torch.tanh(x @ x)
        return y

def get_inputs():
    return [torch.randn(192, 192)]

def get_init_inputs():
    return []
"""
TASK = Task("test/thrice", 1, "thrice", REFERENCE)
CANDIDATE = """
# {nonce}
import torch
import torch.nn as nn

class ModelNew(nn.Module):
    def forward(self, x):
        {work}
"""
HONEST, WRONG = "return torch.tanh(x @ x)", "return torch.tanh(x @ x.T)"
STATE = """
        import json, os, resource, signal
        state = {
            "priority": os.getpriority(os.PRIO_PROCESS, 0),
            "policy": os.sched_getscheduler(0),
            "cores": len(os.sched_getaffinity(0)),
            "memory": open("/proc/self/oom_score_adj").read().strip(),
            "limits": [resource.getrlimit(kind) for kind in (resource.RLIMIT_FSIZE, resource.RLIMIT_CPU,
                       resource.RLIMIT_NOFILE, resource.RLIMIT_CORE, resource.RLIMIT_STACK)],
            "mask": os.umask(0o22),
            "ignored": [n for n in range(1, 32) if signal.getsignal(n) is signal.SIG_IGN],
            "files": sorted(os.listdir(".")),
            "threads": torch.get_num_threads(),
            "variables": sorted(os.environ),
        }
        raise RuntimeError("state=" + json.dumps(state) + "=")
"""
_nonces = itertools.count(1)
_TRIES = 4  # other load may change a measurement; an evaluator that is poisoned stays so


@dataclass
class Neighbours:
    """An evaluator's verdicts on the same programs."""

    honest: list[Outcome] = field(default_factory=list)
    wrong: list[Outcome] = field(default_factory=list)
    intervals: list[tuple[float, float]] = field(default_factory=list)
    state: object = None

    def judge(self, evaluator: Evaluator) -> None:
        """Evaluates each program once, under a new source, so that no verdict is remembered."""
        verdicts = [
            evaluator.evaluate(TASK, CANDIDATE.format(nonce=next(_nonces), work=work))
            for work in (HONEST, WRONG, STATE.strip())
        ]
        self.honest.append(verdicts[0].outcome)
        self.wrong.append(verdicts[1].outcome)
        if verdicts[0].speedup is not None:
            estimate = verdicts[0].speedups["eager"]
            self.intervals.append((estimate.low, estimate.high))
        assert verdicts[2].outcome is Outcome.RUNTIME_ERROR
        self.state = json.loads(verdicts[2].message.split("state=")[1].split("=")[0])


def judged_afresh(limits: LimitsConfig) -> Neighbours:
    """The verdicts of an evaluator that has judged nothing else."""
    found = Neighbours()
    with Evaluator(arch="cpu", limits=limits) as evaluator:
        for _ in range(_TRIES):
            found.judge(evaluator)
            if len(found.intervals) >= 2:
                break
    assert found.intervals, found
    return found


@pytest.fixture(scope="module")
def fresh(limits) -> Neighbours:
    return judged_afresh(limits)


COMPILED = "compiled"  # exploits of any family that compile, which takes long
GROUPS = [*FAMILIES, pytest.param(COMPILED, marks=pytest.mark.slow)]


def _exploits(group: str) -> list[GauntletProgram]:
    found = [one for one in discover("cpu") if one.is_exploit and one.family in FAMILIES]
    return [one for one in found if (COMPILED if "load_inline" in one.source else one.family) == group]


@pytest.mark.parametrize("group", GROUPS)
def test_exploits_change_no_later_verdict(evaluator, fresh, limits, group) -> None:
    if evaluator.device.arch != "cpu":
        pytest.skip("compared with a fresh evaluator of the CPU")
    exploits = _exploits(group)
    assert len(exploits) >= 2
    outcomes = {one.name: evaluator.evaluate(one.task, one.source).outcome for one in exploits}
    assert Outcome.INFRA not in outcomes.values(), outcomes
    for _ in range(_TRIES):
        after = Neighbours()
        after.judge(evaluator)
        assert after.wrong == [Outcome.WRONG]
        assert after.state == fresh.state
        low, high = min(low for low, _ in fresh.intervals), max(high for _, high in fresh.intervals)
        if after.intervals and after.intervals[0][0] <= high and low <= after.intervals[0][1]:
            return
        fresh = judged_afresh(limits)  # the machine may have been busy when the fresh one was measured
    pytest.fail(f"after {group}: {after}, not as {fresh}")

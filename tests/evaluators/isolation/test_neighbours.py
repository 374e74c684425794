"""After exploits that attack later programs, an evaluator judges an honest and a wrong program as a fresh one does."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import dataclass, replace

import pytest

from evaluators.evaluator import Evaluator
from evaluators.gauntlet import discover
from evaluators.gauntlet.programs import GauntletProgram
from evaluators.records import Outcome, Task, Verdict

pytestmark = pytest.mark.measures

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
SAME = """
        for _ in range(3):
            y = torch.tanh(x @ x)
        return y
"""
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
_RATIO = 2.7  # of three products, of which only the first finds its input outside of the nearest cache, to one
_SLACK = 1.25  # between two intervals of the same program; an evaluator that is poisoned is off by more
_OTHERS = 1.6  # other programs on the machine take caches away, so that all three products find their input outside


@dataclass(frozen=True)
class Neighbours:
    """An evaluator's verdicts on the same programs. `interval`: of the honest program's speed-up. `same`: of the
    reference's own."""

    honest: Outcome
    wrong: Outcome
    interval: tuple[float, float]
    state: object
    same: tuple[float, float] = (1.0, 1.0)

    @property
    def noise(self) -> float:
        """The factor by which the wider interval reaches away from its middle: how far the machine disturbed what was
        measured. Where an interval lies plays no part: a poisoned evaluator is not to excuse itself."""
        return max((math.sqrt(high / low) for low, high in (self.interval, self.same) if low > 0), default=1.0)

    @classmethod
    def judged_by(cls, evaluator: Evaluator) -> Neighbours:
        """Evaluates each program once, under a new source, so that no verdict is remembered."""
        same, honest, wrong, state = (
            evaluator.evaluate(TASK, CANDIDATE.format(nonce=next(_nonces), work=work))
            for work in (SAME.strip(), HONEST, WRONG, STATE.strip())
        )
        assert state.outcome is Outcome.RUNTIME_ERROR
        found = json.loads(state.message.split("state=")[1].split("=")[0])
        return cls(honest.outcome, wrong.outcome, _interval(honest), found, _interval(same))

    def differences(self, other: Neighbours) -> list[str]:
        """What another evaluator, judging the same, does differently."""
        slack = max(_SLACK, self.noise, other.noise)

        def apart(own: tuple[float, float], its: tuple[float, float]) -> bool:
            return its[0] > slack * own[1] or slack * its[1] < own[0]

        return [
            *(["honest"] if other.honest is not self.honest else []),
            *(["wrong"] if other.wrong is not self.wrong else []),
            *(["state"] if other.state != self.state else []),
            *(["interval"] if apart(self.interval, other.interval) else []),
            *(["same"] if apart(self.same, other.same) else []),
        ]


def _interval(verdict: Verdict) -> tuple[float, float]:
    estimate = verdict.speedups.get("eager")
    return (estimate.low, estimate.high) if estimate else (0.0, 0.0)


@pytest.fixture(scope="module")
def fresh(limits) -> Neighbours:
    """The verdicts of an evaluator that has judged nothing else."""
    with Evaluator(arch="cpu", limits=limits) as evaluator:
        return Neighbours.judged_by(evaluator)


def test_a_fresh_evaluator_is_right(fresh) -> None:
    assert (fresh.honest, fresh.wrong) == (Outcome.OK, Outcome.WRONG)
    slack = max(_SLACK, fresh.noise)
    assert fresh.same[0] < slack
    assert fresh.same[1] > 1 / slack
    assert fresh.interval[0] < _RATIO * _OTHERS * fresh.noise
    assert fresh.interval[1] > _RATIO / (_OTHERS * fresh.noise)


@pytest.mark.parametrize(
    ("defect", "changed"),
    [
        ("honest", {"honest": Outcome.RUNTIME_ERROR}),
        ("wrong", {"wrong": Outcome.OK}),
        ("state", {"state": {"priority": 19}}),
        ("interval", {"interval": (6.0, 7.0)}),
        ("interval", {"interval": (1.0, 1.5)}),
        ("same", {"same": (2.8, 3.2)}),
        ("same", {"same": (0.4, 0.5)}),
    ],
)
def test_a_poisoned_evaluator_would_be_noticed(defect, changed) -> None:
    sound = Neighbours(Outcome.OK, Outcome.WRONG, (2.6, 3.2), {"priority": 0})
    assert sound.differences(sound) == []
    assert sound.differences(replace(sound, **changed)) == [defect]


COMPILED = "compiled"  # exploits of any family that compile, which takes long
GROUPS = [*FAMILIES, COMPILED]


def _exploits(group: str) -> list[GauntletProgram]:
    found = [one for one in discover("cpu") if one.is_exploit and one.family in FAMILIES]
    return [one for one in found if (COMPILED if "load_inline" in one.source else one.family) == group]


@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS)
def test_exploits_change_no_later_verdict(evaluator, fresh, group) -> None:
    if evaluator.device.arch != "cpu":
        pytest.skip("compared with a fresh evaluator of the CPU")
    exploits = _exploits(group)
    assert len(exploits) >= 2
    outcomes = {one.name: evaluator.evaluate(one.task, one.source).outcome for one in exploits}
    assert Outcome.INFRA not in outcomes.values(), outcomes
    after = Neighbours.judged_by(evaluator)
    assert fresh.differences(after) == [], (fresh, after)

"""A look on a CPU ends programs that fail anywhere, with the outcome of a whole judgement, and leaves all others."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from configs.schema import LimitsConfig, RewardConfig
from evaluators.compile.builder import Builder
from evaluators.evaluator import Evaluator
from evaluators.gauntlet import discover
from evaluators.host.cpu_device import CpuDevice
from evaluators.judge.cpu_look import CpuLook, right_programs
from evaluators.records import JUDGED_ON, Outcome, Task
from evaluators.reward import reward_of
from evaluators.tasks import find_task

SIZES = {"batch_size": 256, "dim": 2048}
TASK = find_task("level1/softmax").with_sizes(**SIZES)
RIGHT = """
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)
"""
FORWARD = "return torch.softmax(x, dim=-1)"


def instead(body: str) -> str:
    return RIGHT.replace(FORWARD, body)


ENDED = {  # programs that fail anywhere
    "no Python": (Outcome.BUILD_ERROR, "def ("),
    "defines nothing": (Outcome.BUILD_ERROR, "x = 1\n"),
    "imports what torch lacks": (Outcome.RUNTIME_ERROR, f"from torch.nn import Nothing\n{RIGHT}"),
    "wants an argument": (
        Outcome.RUNTIME_ERROR,
        f"{RIGHT}\n    def __init__(self, more):\n        super().__init__()\n",
    ),
    "an unknown name": (Outcome.RUNTIME_ERROR, instead("return nothing(x)")),
    "an unknown attribute": (Outcome.RUNTIME_ERROR, instead("return self.norm(x)")),
    "an unknown argument": (Outcome.RUNTIME_ERROR, instead("return torch.softmax(x, axis_of=1)")),
    "shapes that never fit": (Outcome.RUNTIME_ERROR, instead("return x @ x[:, :3]")),
    "another shape": (Outcome.WRONG, instead("return torch.softmax(x, dim=-1)[None]")),
    "another dtype": (Outcome.WRONG, instead("return torch.softmax(x.double(), dim=-1)")),
    "no tensor": (Outcome.WRONG, instead("return [torch.softmax(x, dim=-1)]")),
}
PLAINLY_WRONG = {  # programs whose values are wrong anywhere
    "another dimension": instead("return torch.softmax(x, dim=0)"),
    "left out": instead("return torch.exp(x)"),
    "zeros": instead("return torch.zeros_like(x, device=x.device)"),
    "NaN": instead("return torch.log(-torch.softmax(x, dim=-1))"),
    "of other strides": instead("return torch.exp(x).t().contiguous().t()"),
}
LEFT = {  # programs that may do better elsewhere, or that run
    "right": RIGHT,
    "a number of its own": instead("return torch.softmax(x, dim=-1) * 1.5"),
    "an error that is not plain": instead("y = torch.softmax(x, dim=-1); return y - y * y.sigmoid() ** 3 * 0.5"),
    "some elements": instead("y = torch.softmax(x, dim=-1); y[0, :3] = y[0, :3].neg().log(); return y"),
    "wrong at other sizes": instead("return torch.softmax(x, dim=-1) if len(x) == 256 else x"),
    "divided by its size": instead("return torch.softmax(x, dim=-1) * len(x) / 256"),
    "wrong on a CPU": instead("return torch.softmax(x, dim=-1) if x.device.type != 'c' 'pu' else x"),
    "wrong on a CPU, in other words": instead("return torch.softmax(x * (x.device.type != 'c' 'pu'), dim=-1)"),
    "wrong without an operator": instead(
        "try:\n            return torch.fast_softmax(x)\n        except AttributeError:\n            return x"
    ),
    "other strides": instead("return torch.softmax(x, dim=-1).t().contiguous().t()"),
    "the right shape at these sizes": instead("return torch.softmax(x, dim=-1) if len(x) == 256 else x[None]"),
    "for these sizes": instead("return torch.softmax(x.view(256, 2048), dim=-1)"),
    "too large for other sizes": instead("assert x.shape == (256, 2048); return torch.softmax(x, dim=-1)"),
    "depends on values": instead("return torch.softmax(x, dim=-1) if x.max() > -9 else nothing"),
    "fails elsewhere on meta": instead("y = x.view(256, 2048)\n        return y[torch.nonzero(y[0])[0]] + nothing"),
    "names a GPU": instead("x = x.to('cuda'); return nothing(x)"),
    "another library": f"import nowhere\n{RIGHT}",
    "compiles": instead("return torch.compile(nothing)(x)"),
    "lacks memory": instead("raise MemoryError('no memory')"),
    "is out of memory": instead("raise RuntimeError('out of memory')"),
    "an operator that a device lacks": instead("raise NotImplementedError('softmax')"),
    "a dtype that a device lacks": instead("raise RuntimeError('not implemented for Half')"),
    "exits": instead("import os; os._exit(3)"),
}
ON_A_CPU_ONLY = {  # programs that know the device
    "refuses a CPU": instead(f"assert not x.is_cpu\n        {FORWARD}"),
    "asks the device": instead(f"assert x.device.type != 'c' 'pu'\n        {FORWARD}"),
}


@pytest.fixture(scope="module", params=["cpu", pytest.param("H200", marks=pytest.mark.slow)])
def builder(
    request: pytest.FixtureRequest, limits: LimitsConfig, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Builder]:
    """Builders for the CPU, and for a GPU that this host need not have."""
    device = CpuDevice() if request.param == "cpu" else request.param
    made = Builder(device, tmp_path_factory.mktemp("store"), limits)
    yield made
    made.close()


@pytest.fixture(scope="module")
def looking(builder: Builder) -> CpuLook:
    return CpuLook(builder)


@pytest.mark.parametrize("name", ENDED)
def test_a_program_that_fails_anywhere_is_ended(looking: CpuLook, builder: Builder, name: str) -> None:
    outcome, source = ENDED[name]
    verdict = looking.look(TASK, source, preset="fast")
    assert verdict is not None
    assert verdict.outcome is outcome, verdict.message
    assert verdict.arch == builder.arch
    assert verdict.evaluator[JUDGED_ON] == "cpu"
    assert verdict.evaluator["preset"] == "fast"
    assert verdict.cost["total"] == verdict.cost["cpu_look"] > 0
    assert not verdict.speedups
    assert reward_of(verdict, RewardConfig()) == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("name", ENDED)
def test_a_whole_judgement_says_the_same(looking: CpuLook, evaluator: Evaluator, name: str) -> None:
    outcome, source = ENDED[name]
    whole, ended = evaluator.evaluate(TASK, source), looking.look(TASK, source, preset="fast")
    assert ended is not None
    assert whole.outcome is ended.outcome is outcome
    assert whole.message.rpartition("\nline ")[2] == ended.message.rpartition("\nline ")[2]
    assert whole.message.partition(":")[0] == ended.message.partition(":")[0]


@pytest.mark.parametrize("name", PLAINLY_WRONG)
def test_a_program_of_plainly_wrong_values_is_ended_by_its_figures(looking: CpuLook, name: str) -> None:
    verdict = looking.look(TASK, PLAINLY_WRONG[name], preset="fast")
    assert verdict is not None
    assert verdict.outcome is Outcome.WRONG
    assert verdict.correctness is not None
    assert verdict.correctness.error > 0.1 > verdict.correctness.tolerance
    assert verdict.correctness.trials == 2
    reason = "the output holds NaN" if name == "NaN" else "relative error "
    assert verdict.message.startswith(reason)
    assert "on a CPU at batch_size = 4, dim = 2048; root mean square error" in verdict.message
    assert verdict.evaluator[JUDGED_ON] == "cpu"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["another dimension", "NaN"])
def test_a_whole_judgement_finds_these_values_wrong(evaluator: Evaluator, name: str) -> None:
    whole = evaluator.evaluate(TASK, PLAINLY_WRONG[name])
    assert whole.outcome is Outcome.WRONG, whole.message


@pytest.mark.parametrize("name", LEFT)
def test_a_program_that_may_do_better_elsewhere_is_left(looking: CpuLook, name: str) -> None:
    assert looking.look(TASK, LEFT[name], preset="fast") is None


@pytest.mark.parametrize("name", ON_A_CPU_ONLY)
def test_a_program_that_fails_on_a_cpu_alone_is_ended_only_if_it_is_for_a_cpu(
    looking: CpuLook, builder: Builder, name: str
) -> None:
    """Whatever a program does because it sees a CPU decides nothing if it is for a GPU."""
    verdict = looking.look(TASK, ON_A_CPU_ONLY[name], preset="fast")
    assert (verdict is None) == (builder.arch != "cpu")


def test_messages_speak_of_the_sizes_of_the_task(looking: CpuLook) -> None:
    verdict = looking.look(TASK, ENDED["shapes that never fit"][1], preset="fast")
    assert verdict is not None
    assert "2048" in verdict.message


def test_a_program_that_hangs_is_left(looking: CpuLook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evaluators.judge.cpu_look._SECONDS", 1.0)
    assert looking.is_used_for(TASK)
    assert looking.look(TASK, instead("while True: pass"), preset="fast") is None


def test_a_task_is_left_out_if_a_right_program_of_it_would_be_ended(builder: Builder) -> None:
    broken = ENDED["an unknown name"][1]
    assert CpuLook(builder, lambda _: [RIGHT]).is_used_for(TASK)
    strict = CpuLook(builder, lambda task_id: [RIGHT, broken] if task_id == TASK.id else [])
    assert not strict.is_used_for(TASK)
    assert strict.look(TASK, broken, preset="fast") is None


def test_values_decide_nothing_if_a_right_program_would_be_ended(builder: Builder) -> None:
    wrong = PLAINLY_WRONG["left out"]
    assert CpuLook(builder).look(TASK, wrong, preset="fast") is not None
    strict = CpuLook(builder, lambda _: [wrong])
    assert strict.look(TASK, wrong, preset="fast") is None


WEIGHTED = """
import torch
import torch.nn as nn

batch_size, features = 512, 24


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features, features))

    def forward(self, x):
        return torch.tanh(x @ self.weight)


def get_inputs():
    return [torch.randn(batch_size, features)]


def get_init_inputs():
    return [features]
"""
RIGHT_WEIGHTED = (
    WEIGHTED.partition("\n\ndef get_inputs")[0]
    .replace("batch_size, features = 512, 24\n", "")
    .replace("class Model", "class ModelNew")
)


@pytest.mark.parametrize(("strict", "ended"), [("drop_in", True), ("values", False)])
def test_weights_of_construction_are_kept_if_a_judgement_keeps_them(builder: Builder, strict: str, ended: bool) -> None:
    task = Task("level2/weighted", 2, "weighted", WEIGHTED)
    looking = CpuLook(builder, strict=strict)
    right, made = RIGHT_WEIGHTED, "nn.Parameter(torch.randn(features, features))"
    assert looking.look(task, right, preset="fast") is None
    folded = right.replace(made, f"{made}\n        self.folded = self.weight.clone()").replace(
        "x @ self.weight", "x @ self.folded"
    )
    assert (looking.look(task, folded, preset="fast") is not None) == ended
    others = right.replace("torch.randn(features, features)", "torch.zeros(features, features)")
    assert (looking.look(task, others, preset="fast") is not None) != ended  # new weights mend it
    other_names = right.replace("self.weight", "self.matrix")  # equal seeds give equal weights
    assert looking.look(task, other_names, preset="fast") is None
    assert looking.look(task, other_names.replace("tanh", "exp"), preset="fast") is not None


@pytest.mark.parametrize(
    "body",
    [
        "return x[torch.nonzero(x[:, 0] > 0)[:, 0]].sum(0)",  # its form depends on values
        "return torch.softmax(x.view(256, -1), dim=-1)",  # runs at its own sizes alone
        "return nothing(x)",
    ],
)
def test_a_task_is_left_out_unless_its_reference_passes(builder: Builder, body: str) -> None:
    text = TASK.source.replace("class Model(", "class Previous(") + (
        f"\n\nclass Model(nn.Module):\n    def forward(self, x):\n        {body}\n"
    )
    task = Task("level1/other", 1, "other", text, sizes={"batch_size": 256, "dim": 300_007})
    looking = CpuLook(builder)
    assert not looking.is_used_for(task)
    assert looking.look(task, ENDED["an unknown name"][1], preset="fast") is None


def test_the_right_programs_of_tasks_are_those_that_a_device_has() -> None:
    known = right_programs("bundled", "cuda")
    assert len(known) >= 24
    assert sum(map(len, known.values())) >= 100
    assert not any("wrong_axis" in source or "triton" in source for source in known["level1/softmax"])


HONEST = [one for one in discover("cpu") if not one.is_exploit and one.family in ("dispatch", "state", "style")]


@pytest.mark.slow
@pytest.mark.parametrize("program", HONEST, ids=lambda program: program.id)
def test_honest_programs_that_depend_on_their_surroundings_are_left(looking: CpuLook, program) -> None:
    assert looking.look(find_task(program.task, "cuda"), program.source, preset="fast") is None


def test_no_descriptor_stays_open(looking: CpuLook) -> None:
    """One that did would keep the memory of a program's tensors, too."""
    program = ENDED["an unknown name"][1]
    looking.look(TASK, program, preset="fast")
    before = len(os.listdir("/proc/self/fd"))
    for number in range(3):
        looking.look(TASK, f"{program}\nnumber = {number}\n", preset="fast")
    assert len(os.listdir("/proc/self/fd")) <= before


def test_no_folder_is_left_behind(looking: CpuLook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor any process: `RunnerHandle.end` raises for one, and nothing is certain then."""
    source = instead("open('left', 'w').write('here'); return nothing(x)")
    first = looking.look(TASK, source, preset="fast")
    second = looking.look(TASK, source.replace("'w'", "'x'"), preset="fast")
    assert first is not None
    assert second is not None
    assert "NameError" in second.message  # not FileExistsError

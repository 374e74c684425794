"""Honest programs get the verdict they deserve, whatever the form of their inputs, outputs and state."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from configs.schema import RewardConfig
from evaluators.evaluator import Evaluator
from evaluators.records import Outcome, Task, Verdict, verdict_table
from evaluators.reward import reward_of


def task_of(model: str, inputs: str = "[torch.randn(n, n)]", arguments: str = "[]", top: str = "n = 160") -> Task:
    source = f"import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n{top}\n{model}\n"
    source += f"def get_inputs(): return {inputs}\ndef get_init_inputs(): return {arguments}\n"
    return Task("test/honest", 1, "honest", source)


def reference_of(task: Task) -> str:
    return task.source.replace("Model(", "ModelNew(")


def model(forward: str, init: str = "pass", name: str = "Model") -> str:
    return (
        f"import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\nclass {name}(nn.Module):\n"
        f"    def __init__(self):\n        super().__init__()\n        {init}\n"
        f"    def forward(self, *x):\n        {forward}\n"
    )


WEIGHT = "self.w = nn.Parameter(torch.randn(160, 160))"
TWICE = task_of(model("return torch.tanh(x[0] @ self.w) + torch.tanh(x[0] @ self.w)", WEIGHT))


def test_the_reference_is_as_fast_as_itself(evaluator) -> None:
    verdict = evaluator.evaluate(TWICE, reference_of(TWICE))
    assert verdict.outcome is Outcome.OK, verdict.message
    assert 0.8 < verdict.speedup < 1.25
    assert verdict.correctness.error <= verdict.correctness.tolerance
    assert verdict.correctness.trials >= 10  # every timed output was compared
    assert set(verdict.speedups) == {"eager"}
    assert reward_of(verdict, RewardConfig()) == verdict.speedup


def test_half_the_work_is_faster_and_double_the_work_slower(evaluator) -> None:
    half = evaluator.evaluate(TWICE, model("return 2 * torch.tanh(x[0] @ self.w)", WEIGHT, "ModelNew"))
    double = "sum(torch.tanh(x[0] @ self.w) for _ in range(4)) / 2"
    slower = evaluator.evaluate(TWICE, model(f"return {double}", WEIGHT, "ModelNew"))
    assert half.outcome is slower.outcome is Outcome.OK, half.message + slower.message
    assert half.speedups["eager"].low > 1.2
    assert slower.speedups["eager"].high < 0.85


def test_bursts_of_what_is_much_slower_are_short(evaluator, monkeypatch) -> None:
    """A reference so short is called several times in a row, which would take long beside this one."""
    task = task_of(model("return torch.tanh(x[0])"))
    asked, calls = [], evaluator.device.calls  # first of a calibration, where there is one
    monkeypatch.setattr(evaluator.device, "calls", lambda seconds, most: asked.append(seconds) or calls(seconds, most))
    slow = "return torch.tanh(sum(torch.sin(x[0]) for _ in range(300)) * 0 + x[0])"
    slower = evaluator.evaluate(task, model(slow, name="ModelNew"))
    beside_slower = asked[-1]
    alike = evaluator.evaluate(task, reference_of(task))
    assert slower.outcome is alike.outcome is Outcome.OK, slower.message + alike.message
    assert slower.speedup < 0.05
    assert beside_slower > 2 * asked[-1]
    assert beside_slower == pytest.approx(slower.timing.candidate_seconds.value / 10, rel=0.7)
    monkeypatch.setattr(evaluator, "preset", replace(evaluator.preset, trials=1))
    once = "if not hasattr(self, 'n'): self.n = 1; __import__('time').sleep(0.5)\n        return torch.tanh(x[0])"
    evaluator.evaluate(task, model(once, name="ModelNew"))
    assert asked[-1] < 0.01, "not a tenth of what its first call took, which may compile"


HONEST = {
    "a tuple": task_of(model("return torch.tanh(x[0]), x[0].sum(1)")),
    "a dict of lists": task_of(model("return {'a': [torch.tanh(x[0])], 'b': (x[0] * 2, x[0].sum())}")),
    "integers": task_of(model("return torch.tanh(x[0]).argmax(dim=1)")),
    "booleans": task_of(model("return torch.tanh(x[0]) > 0.5")),
    "rounded integers": task_of(model("return (x[0] @ x[0]).round().to(torch.int32)")),
    "complex numbers": task_of(model("return torch.fft.rfft(x[0])")),
    "no elements": task_of(model("return torch.tanh(x[0])[:0]")),
    "an expanded output": task_of(model("return x[0].mean(dim=0, keepdim=True).expand(160, 160)")),
    "infinities": task_of(model("return torch.exp(x[0] * 1000)")),
    "NaN": task_of(model("return torch.sqrt(x[0])")),
    "several inputs": task_of(model("return x[0] @ x[1] + x[2]"), "[torch.randn(n, n) for _ in range(3)]"),
    "other inputs": task_of(
        model("return F.pad(x[0] * x[1], (1, 1), mode=x[2]) + sum(x[4]).sum() + x[5]['k'].sum()"),
        "[torch.randn(n, n), 3, 'constant', None, [torch.randn(4), torch.randn(4)], {'k': torch.randn(3)}]",
    ),
    "integer inputs": task_of(
        model("return self.e(x[0])", "self.e = nn.Embedding(50, 64)"), "[torch.randint(0, 50, (64, 64))]"
    ),
    "strided inputs": task_of(model("return x[0] * 2 + x[0].stride(0)"), "[torch.randn(n, n).t()]"),
    "expanded inputs": task_of(model("return x[0] * 2"), "[torch.randn(n, 1).expand(n, n)]"),
    "batch norm in training": task_of(
        model("return self.b(x[0])", "self.b = nn.BatchNorm2d(8)"), "[torch.randn(8, 8, 12, 12)]"
    ),
    "dropout": task_of(model("return F.dropout(x[0], 0.5) * 2")),
    "a hidden state": task_of(
        model(
            "self.h = torch.tanh(x[0] @ self.w * 0.05 + self.h); return self.h",
            WEIGHT + "; self.h = torch.zeros(160, 160)",
        )
    ),
    "an asserted dtype": task_of(model("assert x[0].dtype is torch.float32; return torch.tanh(x[0] @ x[0])")),
    "bfloat16": task_of(model("return torch.tanh(x[0])"), "[torch.randn(n, n).bfloat16()]"),
}


@pytest.mark.parametrize("name", HONEST)
def test_the_reference_is_ok_as_a_candidate(evaluator, name) -> None:
    verdict = evaluator.evaluate(HONEST[name], reference_of(HONEST[name]))
    assert verdict.outcome is Outcome.OK, verdict.message


@pytest.mark.parametrize(
    ("name", "forward"),
    [
        ("dropout", "return x[0] * 2"),
        ("dropout", "return torch.zeros_like(x[0])"),
        ("a tuple", "return torch.tanh(x[0]), x[0].sum(0)"),
        ("a dict of lists", "return {'b': [torch.tanh(x[0])], 'a': (x[0] * 2, x[0].sum())}"),
        ("integers", "return torch.tanh(x[0]).argmax(dim=1).int()"),
        ("integers", "return torch.tanh(x[0]).argmin(dim=1)"),
        ("booleans", "return torch.tanh(x[0]) > 0.6"),
        ("an expanded output", "return x[0].mean(dim=0, keepdim=True).expand(160, 160).contiguous()"),
        ("NaN", "return torch.sqrt(x[0].abs())"),
        ("infinities", "return torch.exp(x[0] * 1000).clamp(max=1e38)"),
        ("bfloat16", "return x[0] * 0.5"),
    ],
)
def test_another_function_is_wrong(evaluator, name, forward) -> None:
    verdict = evaluator.evaluate(HONEST[name], model(forward, name="ModelNew"))
    assert verdict.outcome is Outcome.WRONG, verdict.message
    assert verdict.message
    assert reward_of(verdict, RewardConfig()) == 0.0


def test_state_of_other_names_is_drawn_under_the_same_seed(evaluator) -> None:
    renamed = model("return 2 * torch.tanh(x[0] @ self.other)", WEIGHT.replace("self.w", "self.other"), "ModelNew")
    assert evaluator.evaluate(TWICE, renamed).outcome is Outcome.OK


@pytest.mark.parametrize(
    ("init", "product"),
    [
        ("; self.other = nn.Parameter(self.w.detach().t().contiguous()); del self.w", "(x[0] @ self.other.t())"),
        ("; self.register_buffer('spare', torch.empty(3, 5))", "(x[0] @ self.w)"),
        ("; self.h = nn.ParameterList(self.w.detach().chunk(2, 1)); del self.w", "x[0] @ torch.cat([*self.h], 1)"),
    ],
)  # fmt: skip
def test_state_of_another_layout_is_ok(evaluator, init, product) -> None:
    verdict = evaluator.evaluate(TWICE, model(f"return 2 * torch.tanh({product})", WEIGHT + init, "ModelNew"))
    assert verdict.outcome is Outcome.OK, (verdict.message, verdict.guard)


@pytest.mark.parametrize(
    ("init", "outcome"),
    [
        ("; self.kept = self.w.detach().clone(); self.other = self.w; del self.w", Outcome.WRONG),
        ("; self.register_buffer('kept', self.w.detach() * 1.5)", Outcome.WRONG),
        ("; self.kept = self.w.detach().clone(); self.w.data.zero_()", Outcome.WRONG),
        ("; self.kept = self.w.detach().clone(); self.v = self.w; self.v.data.zero_(); del self.w", Outcome.SUSPECT),
    ],
)  # fmt: skip
def test_weights_kept_apart_from_those_in_the_state_are_found_out(evaluator, init, outcome) -> None:
    scale = " / 1.5" if "1.5" in init else ""
    candidate = model(f"return 2 * torch.tanh(x[0] @ (self.kept.to(x[0].device){scale}))", WEIGHT + init, "ModelNew")
    verdict = evaluator.evaluate(TWICE, candidate)
    assert verdict.outcome is outcome, (verdict.message, verdict.guard)
    assert "weights" in verdict.message or "weights" in [finding.kind for finding in verdict.guard]


def test_a_state_of_another_size_each_time_is_an_error(evaluator) -> None:
    hook = "lambda *_: sizes.append(0) or {'other': torch.zeros(len(sizes))}"
    init = WEIGHT.replace("self.w", "self.other") + f"; self._register_state_dict_hook({hook})"
    lies = "sizes = []\n" + model("return 2 * torch.tanh(x[0] @ self.other)", init, "ModelNew")
    verdict = evaluator.evaluate(TWICE, lies)
    assert verdict.outcome is Outcome.RUNTIME_ERROR, verdict.guard
    assert "shape" in verdict.message


def test_sizes_change_what_both_sides_get(evaluator) -> None:
    task = task_of(model("return torch.tanh(x[0]) * x[0].shape[0]"))
    fixed = model("return torch.tanh(x[0]) * 160", name="ModelNew")
    assert evaluator.evaluate(task, fixed).outcome is Outcome.OK
    assert evaluator.evaluate(task.with_sizes(n=96), fixed).outcome is Outcome.WRONG


def test_an_identical_candidate_is_measured_once_a_preset(evaluator) -> None:
    source = model("return 2 * torch.tanh(x[0] @ self.w) * 1", WEIGHT, "ModelNew")
    first = evaluator.evaluate(TWICE, source)
    start = time.perf_counter()
    again = evaluator.evaluate(TWICE, "# the same\n" + source)
    assert again == first
    assert time.perf_counter() - start < 0.1
    thorough = evaluator.evaluate(TWICE, source, preset="thorough")
    assert thorough.timing.pairs > first.timing.pairs
    assert thorough.evaluator["preset"] == "thorough"


def test_a_verdict_survives_json_and_parquet(evaluator) -> None:
    verdict = evaluator.evaluate(TWICE, reference_of(TWICE))
    assert Verdict.from_row(json.loads(json.dumps(verdict.to_row()))) == verdict
    assert Verdict.from_row(verdict_table([verdict]).to_pylist()[0]) == verdict


@pytest.mark.parametrize(
    "task",
    [
        task_of("raise ValueError('broken')"),
        task_of("x = 1"),
        task_of(model("raise ValueError('broken')")),
        task_of(model("return x[0]"), inputs="1 / 0"),
        task_of(model("return x[0]"), arguments="1 / 0"),
        task_of(model("return x[0]")).with_sizes(unknown=3),
    ],
    ids=["import", "no Model", "forward", "get_inputs", "get_init_inputs", "sizes"],
)
@pytest.mark.parametrize("extra", ["", "# torch.compile("], ids=["plain", "to build"])
def test_a_broken_task_is_nobodys_fault_but_ours(evaluator, task, extra) -> None:
    verdict = evaluator.evaluate(task, model("return x[0]", name="ModelNew") + extra)
    assert verdict.outcome is Outcome.INFRA
    assert "test/honest" in verdict.message
    assert reward_of(verdict, RewardConfig()) is None


def _zygotes() -> list[int]:
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return [int(pid) for pid in children if b"evaluators.sandbox.zygote" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_an_evaluator_outlives_its_zygote(evaluator) -> None:
    for zygote in _zygotes():
        os.kill(zygote, signal.SIGKILL)
    verdict = evaluator.evaluate(TWICE, model("return 2 * torch.tanh(x[0] @ self.w) + 0", WEIGHT, "ModelNew"))
    assert verdict.outcome is Outcome.OK, verdict.message


def test_an_evaluation_outlives_its_zygote(evaluator) -> None:
    evaluator.evaluate(TWICE, reference_of(TWICE))  # so that there is a zygote
    slow = "import time\ntime.sleep(1.5)\n" + model("return 2 * torch.tanh(x[0] @ self.w) - 0", WEIGHT, "ModelNew")
    killer = threading.Timer(0.8, lambda: [os.kill(zygote, signal.SIGKILL) for zygote in _zygotes()])
    killer.start()
    verdict = evaluator.evaluate(TWICE, slow)
    killer.join()
    assert verdict.outcome is Outcome.OK, verdict.message


@pytest.mark.parametrize(
    ("options", "words"),
    [({"arch": "Z80"}, "Z80"), ({"preset": "slow"}, "slow"), ({"baselines": ("cuda_graph",)}, "cuda_graph")],
)
def test_an_evaluator_that_cannot_be_is_refused_by_name(options, words) -> None:
    with pytest.raises(ValueError, match=words):
        Evaluator(**{"arch": "cpu", **options})


# Inputs that the task does not show


RELU = task_of(model("return torch.relu(x[0]) * 3"), "[torch.rand(n, n)]")


def test_leaving_out_what_the_tasks_own_inputs_never_need_is_wrong(evaluator) -> None:
    assert evaluator.evaluate(RELU, reference_of(RELU)).outcome is Outcome.OK
    verdict = evaluator.evaluate(RELU, model("return x[0] * 3", name="ModelNew"))
    assert verdict.outcome is Outcome.WRONG
    assert verdict.message.endswith(" on inputs that are normally distributed")
    assert verdict.correctness.trials == 3  # the task's own two passed before
    assert verdict.speedups == {}


def test_a_bound_that_only_larger_values_reach_is_wrong(evaluator) -> None:
    task = task_of(model("return x[0].clamp(-9, 9)"))  # of 25600 normal numbers, none is beyond
    verdict = evaluator.evaluate(task, model("return x[0] * 1", name="ModelNew"))
    assert verdict.outcome is Outcome.WRONG
    assert verdict.message.endswith(" on inputs that are 4 times larger")


@pytest.mark.parametrize("forward", ["return torch.sqrt(x[0])", "return torch.log(x[0] + 1e-3)", "return x[0] ** 0.3"])
def test_inputs_that_the_reference_cannot_take_are_not_asked_of_anybody(evaluator, forward) -> None:
    task = task_of(model(forward), "[torch.rand(n, n) + 0.1]")
    verdict = evaluator.evaluate(task, reference_of(task))
    assert verdict.outcome is Outcome.OK, verdict.message


# Shapes that the task does not show


SHAPED = task_of(model("return torch.tanh(x[0]) * x[0].shape[0] + 1"))


def specialised(extra: str = "") -> str:
    return model(f"return torch.tanh(x[0]) * 160 + 1{extra}", name="ModelNew")


def test_a_program_for_the_tasks_shape_alone_is_ok_and_says_so(evaluator) -> None:
    verdict = evaluator.evaluate(SHAPED, specialised())
    assert verdict.outcome is Outcome.OK, verdict.message
    assert [(one.kind, one.severity) for one in verdict.guard] == [("shapes", "hint")]
    assert verdict.guard[0].message.startswith("fails at n = 100: ")
    assert verdict.correctness.error <= verdict.correctness.tolerance  # of the task's own shape
    general = evaluator.evaluate(SHAPED, reference_of(SHAPED))
    assert general.outcome is Outcome.OK
    assert general.guard == ()


def test_a_program_that_raises_at_another_shape_keeps_its_verdict(evaluator) -> None:
    source = model("assert x[0].shape[0] == 160, 'not mine'; return torch.tanh(x[0]) * 160 + 1", name="ModelNew")
    verdict = evaluator.evaluate(SHAPED, source)
    assert verdict.outcome is Outcome.OK, verdict.message
    assert "not mine" in verdict.guard[0].message
    assert verdict.speedup is not None


def test_a_shape_that_the_reference_refuses_is_not_asked_of_anybody(evaluator) -> None:
    task = task_of(model("return torch.tanh(x[0].view(160, 160))"))
    verdict = evaluator.evaluate(task, model("return torch.tanh(x[0]).view(160, -1)", name="ModelNew"))
    assert verdict.outcome is Outcome.OK, verdict.message
    assert verdict.guard == ()


def test_an_odd_shape_is_tried_where_the_preset_asks_for_two(evaluator, monkeypatch) -> None:
    forward = "y = torch.tanh(x[0]) * x[0].shape[0] + 1; return y if y.shape[1] % 2 == 0 else y * 2"
    source = model(forward, name="ModelNew")
    assert evaluator.evaluate(SHAPED, source).guard == ()
    monkeypatch.setattr(evaluator, "preset", replace(evaluator.preset, name="two shapes", shapes=2))
    verdict = evaluator.evaluate(SHAPED, source)
    assert verdict.outcome is Outcome.OK, verdict.message
    assert verdict.guard[0].message.startswith("fails at n = 99: ")


# Precision


ROUNDED = "y = {exact}; m, e = torch.frexp(y); return torch.ldexp(torch.round(m * 2**{bits}) / 2**{bits}, e)"


@pytest.mark.parametrize(("bits", "outcome"), [(17, Outcome.WRONG), (20, Outcome.OK)])
def test_no_digits_may_be_missing_where_nothing_is_summed(evaluator, bits, outcome) -> None:
    task = task_of(model("return torch.tanh(x[0])"))
    source = model(ROUNDED.format(exact="torch.tanh(x[0])", bits=bits), name="ModelNew")
    verdict = evaluator.evaluate(task, source)
    assert verdict.outcome is outcome, verdict.message


TERMS = """
def split(x):
    found = []
    for _ in range({terms}):
        found.append(x.bfloat16().float())
        x = x - found[-1]
    return found
"""


@pytest.mark.parametrize(("terms", "outcome"), [(2, Outcome.WRONG), (3, Outcome.OK)])
def test_a_product_of_numbers_cut_short_is_told_from_a_whole_one(evaluator, terms, outcome) -> None:
    task = task_of(model("return x[0] @ x[1]"), "[torch.randn(n, n), torch.randn(n, n)]")
    source = model("return sum(a @ b for a in split(x[0]) for b in split(x[1]))", name="ModelNew")
    verdict = evaluator.evaluate(task, source + TERMS.format(terms=terms))
    assert verdict.outcome is outcome, verdict.message


def test_a_sum_may_be_as_far_off_as_its_order_makes_it(evaluator) -> None:
    task = task_of(model("return x[0].cumsum(1)"))
    source = model(ROUNDED.format(exact="x[0].cumsum(1)", bits=17), name="ModelNew")
    verdict = evaluator.evaluate(task, source)
    assert verdict.outcome is Outcome.OK, verdict.message


# Determinism


NOISY = (
    "own = torch.Generator(x[0].device); own.seed(); "
    "return torch.tanh(x[0]) * (1 + {size} * torch.rand(x[0].shape, generator=own, device=x[0].device))"
)


def test_noise_within_the_tolerance_is_noted(evaluator) -> None:
    task = task_of(model("return torch.tanh(x[0])"))
    noisy = evaluator.evaluate(task, model(NOISY.format(size=1e-6), name="ModelNew"))
    assert noisy.outcome is Outcome.OK, noisy.message
    assert noisy.correctness.deterministic is False
    steady = evaluator.evaluate(task, reference_of(task))
    assert steady.outcome is Outcome.OK, steady.message
    assert steady.correctness.deterministic is True
    loud = evaluator.evaluate(task, model(NOISY.format(size=1e-3), name="ModelNew"))
    assert loud.outcome is Outcome.WRONG


def test_random_numbers_of_the_tasks_seed_are_no_noise(evaluator) -> None:
    task = task_of(model("return x[0] + torch.rand_like(x[0])"))
    verdict = evaluator.evaluate(task, model("return torch.rand_like(x[0]) + x[0]", name="ModelNew"))
    assert verdict.outcome is Outcome.OK, verdict.message
    assert verdict.correctness.deterministic is True


def test_where_the_reference_keeps_a_state_nothing_is_said_of_determinism(evaluator) -> None:
    verdict = evaluator.evaluate(
        HONEST["a hidden state"], reference_of(HONEST["a hidden state"]) + "# once more\nk = 1\n"
    )
    assert verdict.outcome is Outcome.OK, verdict.message
    assert verdict.correctness.deterministic is None

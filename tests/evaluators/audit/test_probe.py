"""Every kind of finding marks its own tasks, and no task that only looks like them."""

from __future__ import annotations

import pytest

from evaluators.audit.probe import audit_task
from evaluators.audit.records import (
    AUDIT_SCHEMA,
    AuditFinding,
    FindingKind,
    TaskAudit,
    audit_table,
    common_findings,
)
from evaluators.records import Task
from evaluators.tasks import load_tasks

SEED = 7
BUNDLED = load_tasks("bundled", "cpu")


def task_of(forward: str, init: str = "", inputs: str = "[torch.randn(8, 12)]", arguments: str = "[]") -> Task:
    """A task whose `Model` runs `init` in its constructor and returns the expression `forward` of `x` and `others`."""
    source = f"""import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init or "pass"}

    def forward(self, x, *others):
        return {forward}

def get_inputs():
    return {inputs}

def get_init_inputs():
    return {arguments}
"""
    return Task("test/audited", 1, "audited", source)


def audited(*arguments: str, **named: str) -> TaskAudit:
    return audit_task(task_of(*arguments, **named), seed=SEED)


LINEAR = "self.linear = nn.Linear(12, 20)"
CONV = "self.conv = nn.Conv2d(3, 8, 3)"
IMAGES = "[torch.randn(4, 3, 10, 10)]"


@pytest.mark.parametrize(
    ("forward", "init", "inputs"),
    [
        ("torch.softmax(self.linear(x).amax(1, keepdim=True), dim=1)", LINEAR, "[torch.randn(8, 12)]"),
        ("F.dropout(torch.clamp(torch.clamp(self.linear(x), max=0.0), 0.0, 1.0), 0.2)", LINEAR, "[torch.randn(8, 12)]"),
        ("x.argmax(1) * 0", "", "[torch.randn(8, 12)]"),
        ("F.group_norm(self.conv(x), 4).mean(dim=(1, 2, 3))", CONV, IMAGES),  # zero in exact arithmetic
    ],
)
def test_an_output_that_nothing_changes_is_constant(forward: str, init: str, inputs: str) -> None:
    audit = audited(forward, init, inputs=inputs)
    assert audit.kinds == (FindingKind.CONSTANT,), audit


@pytest.mark.parametrize(
    ("forward", "init", "inputs"),
    [
        ("torch.softmax(self.linear(x)[:, :2], dim=1)", LINEAR, "[torch.randn(8, 12)]"),
        ("F.dropout(torch.clamp(self.linear(x), 0.0, 1.0), 0.2)", LINEAR, "[torch.randn(8, 12)]"),
        ("x.argmax(1)", "", "[torch.randn(8, 12)]"),
        ("(x > 1.5).sum(1)", "", "[torch.randn(8, 12)]"),
        ("F.relu(F.group_norm(self.conv(x), 4)).mean(dim=(1, 2, 3))", CONV, IMAGES),
        ("F.layer_norm(x, (12,))", "", "[torch.randn(8, 12)]"),
        ("F.relu(self.linear(x) - 4.0)", LINEAR, "[torch.randn(8, 12)]"),  # zero only for the task's own inputs
    ],
)
def test_an_output_that_varies_is_not_constant(forward: str, init: str, inputs: str) -> None:
    assert audited(forward, init, inputs=inputs).is_clean


def test_an_output_that_ignores_its_inputs_but_not_its_weights() -> None:
    audit = audited("torch.tanh(self.linear(torch.ones_like(x) * torch.arange(8.)[:, None]))", LINEAR)
    assert audit.kinds == (FindingKind.INPUT_INDEPENDENT,), audit
    assert audited("torch.tanh(self.linear(x + torch.arange(8.)[:, None]))", LINEAR).is_clean


def test_inputs_that_are_the_same_for_every_seed_are_named() -> None:
    embedding = "self.table = nn.Embedding(12, 6)"
    audit = audited("torch.tanh(self.table(x))", embedding, inputs="[torch.arange(12)]")
    assert audit.kinds == (FindingKind.INPUT_INDEPENDENT,), audit
    assert "whatever the seed" in audit.findings[0].message
    assert audited("torch.tanh(self.table(x))", embedding, inputs="[torch.randint(0, 12, (12,))]").is_clean


def test_an_output_that_ignores_its_weights_but_not_its_inputs() -> None:
    forward = "torch.sigmoid(x) * torch.softmax(self.linear(x).amax(1, keepdim=True), dim=1)"
    audit = audited(forward, LINEAR)
    assert audit.kinds == (FindingKind.WEIGHT_INDEPENDENT,), audit
    assert audited(forward.replace("dim=1)", "dim=0)"), LINEAR).is_clean


def test_weights_that_are_equal_for_all_seeds_do_not_count_as_ignored() -> None:
    assert audited("self.norm(x)", "self.norm = nn.LayerNorm(12)").is_clean
    assert audited("self.norm(x)", "self.norm = nn.BatchNorm1d(12)").is_clean
    unused = audited("torch.sigmoid(x)", "self.norm = nn.LayerNorm(12)")
    assert unused.kinds == (FindingKind.WEIGHT_INDEPENDENT,), unused


@pytest.mark.parametrize("size", ["1e-6", "3e-7"])
def test_an_output_that_varies_within_the_tolerance_is_tiny(size: str) -> None:
    audit = audited(f"torch.sigmoid(torch.cumsum(x, 1)) * {size} + 1")
    assert audit.kinds[0] is FindingKind.TINY, audit
    assert "e-0" in audit.findings[0].message


def test_an_output_that_varies_by_more_than_the_tolerance_is_not_tiny() -> None:
    assert audited("torch.sigmoid(torch.cumsum(x, 1)) * 1e-3 + 1").is_clean
    assert audited("torch.sigmoid(torch.cumsum(x, 1)) * 1e-9").is_clean  # small, not constant
    assert audited("F.mse_loss(x, others[0])", inputs="[torch.randn(512, 512), torch.randn(512, 512)]").is_clean


def test_an_output_of_equal_rows_is_collapsible() -> None:
    audit = audited("torch.tanh(x).mean(0, keepdim=True).expand(8, 12).contiguous()")
    assert audit.kinds == (FindingKind.COLLAPSIBLE,), audit
    assert "axis 0 all 8 slices" in audit.findings[0].message
    assert audited("torch.tanh(x).mean(0, keepdim=True) + 0.001 * torch.arange(8)[:, None]").is_clean


@pytest.mark.parametrize(
    ("forward", "init", "inputs"),
    [
        ("self.linear(x).sum(1, keepdim=True) * 1.5", LINEAR, "[torch.randn(8, 12)]"),
        ("self.linear(x).sum(2)", LINEAR, "[torch.randn(2, 6, 12)]"),
        ("torch.logsumexp(self.linear(x).sum(1, keepdim=True), dim=1)", LINEAR, "[torch.randn(8, 12)]"),
        ("self.conv(x).mean(dim=(2, 3))", CONV, IMAGES),
    ],
)
def test_an_affine_output_that_takes_much_less_work_is_collapsible(forward: str, init: str, inputs: str) -> None:
    audit = audited(forward, init, inputs=inputs)
    assert audit.kinds == (FindingKind.COLLAPSIBLE,), audit
    assert "multiply-adds" in audit.findings[0].message


@pytest.mark.parametrize(
    ("forward", "init", "inputs"),
    [
        ("torch.sigmoid(self.linear(x)).sum(1, keepdim=True)", LINEAR, "[torch.randn(8, 12)]"),
        ("self.linear(x)", LINEAR, "[torch.randn(8, 12)]"),
        ("self.linear(x)", LINEAR, "[torch.randn(2, 6, 12)]"),
        ("self.conv(x)", CONV, IMAGES),
        ("x @ others[0]", "", "[torch.randn(8, 12), torch.randn(12, 8)]"),
        ("(x @ others[0]).sum(1)", "", "[torch.randn(8, 12), torch.randn(12, 8)]"),  # bilinear, not affine
        ("torch.cumsum(x, 1)", "", "[torch.randn(8, 12)]"),
        ("F.max_pool2d(self.conv(x), 2).mean(dim=(2, 3))", CONV, IMAGES),  # affine along every ray alone
        ("F.relu(self.conv(x) + 90.0).mean(dim=(2, 3))", CONV, "[torch.rand(4, 3, 10, 10) + 90.0]"),  # on large inputs
        ("x[x > 0]", "", "[torch.randn(8, 12)]"),  # another shape in every call
        ("torch.linalg.inv(x)", "", "[torch.randn(6, 6)]"),  # fails for zeros
        ("F.dropout(self.linear(x), 0.5).sum(1)", LINEAR, "[torch.randn(8, 12)]"),  # another map in every call
    ],
)
def test_an_output_that_needs_its_work_is_not_collapsible(forward: str, init: str, inputs: str) -> None:
    assert audited(forward, init, inputs=inputs).is_clean


def test_a_task_is_marked_only_if_all_of_its_outputs_are_weak() -> None:
    assert audited("(x * 0, torch.sigmoid(x))").is_clean
    assert audited("(x * 0, {'ones': torch.ones(3)})").kinds == (FindingKind.CONSTANT,)


@pytest.mark.parametrize(
    ("forward", "reason"),
    [("x @ x", "mat1 and mat2"), ("x.shape[0]", "holds no tensor"), ("self.absent(x)", "absent")],
)
def test_a_reference_that_fails_has_a_failure_and_no_finding(forward: str, reason: str) -> None:
    audit = audited(forward)
    assert reason in audit.failure
    assert not audit.findings
    assert not audit.is_clean


def test_a_finding_counts_if_all_sizes_have_it() -> None:
    source = task_of("torch.tanh(self.linear(x)) - torch.tanh(self.linear(x)).mean(0)", LINEAR).source
    sized = Task("test/sized", 1, "sized", "n = 8\n" + source.replace("randn(8,", "randn(n,"))
    assert audit_task(sized, ({"n": 1},), SEED).kinds == (FindingKind.CONSTANT,)
    assert audit_task(sized, ({"n": 1}, {"n": 2}), SEED).is_clean
    assert audit_task(sized, ({"n": 1}, {"n": 2}), SEED).sizes == {"n": 1}


@pytest.mark.parametrize(
    ("forward", "init"),
    [
        ("torch.tanh(x) * self.switch", "self.register_buffer('switch', (torch.rand(1) < 0.5).float())"),
        ("torch.tanh(self.linear(x)) * (x.sum() > 0)", LINEAR),
    ],
)
def test_an_accident_of_one_draw_marks_nothing(forward: str, init: str) -> None:
    task = task_of(forward, init)
    accidents = [seed for seed in range(40) if audit_task(task, seed=seed, confirmations=0).findings]
    assert accidents, "the test needs a draw that misleads"
    for seed in accidents[:5]:
        assert audit_task(task, seed=seed).is_clean


def test_a_finding_is_confirmed_in_every_draw() -> None:
    audit = audited("x * 0")
    assert audit.draws == 21
    assert audited("torch.sigmoid(x)").draws == 1
    assert audit_task(task_of("x * 0"), seed=SEED, confirmations=2).draws == 3


def test_two_draws_agree_on_the_weaker_findings() -> None:
    constant, ignores, repeats = (
        AuditFinding(kind, kind)
        for kind in (FindingKind.CONSTANT, FindingKind.INPUT_INDEPENDENT, FindingKind.COLLAPSIBLE)
    )
    assert common_findings([constant], [constant]) == (constant,)
    assert common_findings([constant], [ignores, repeats]) == (ignores, repeats)
    assert common_findings([ignores, repeats], [constant]) == (ignores, repeats)
    assert common_findings([ignores, repeats], [repeats]) == (repeats,)
    assert common_findings([ignores], [repeats]) == ()
    assert common_findings([constant], []) == ()


def test_an_audit_belongs_to_the_text_whatever_the_sizes() -> None:
    task = task_of("x * 0")
    assert audit_task(task, seed=SEED).digest == task.text_digest
    sized = Task("elsewhere/1", 2, "other", "n = 3\n" + task.source)
    assert sized.text_digest == sized.with_sizes(n=5).text_digest != task.text_digest
    copied = Task(task.id, 1, "copied", task.source.replace("\n", "  \r\n") + "\n\n")
    assert copied.text_digest == task.text_digest
    assert Task(task.id, 1, "edited", task.source.replace("12", "13")).text_digest != task.text_digest


def test_audits_survive_arrow() -> None:
    audits = [audited("x * 0"), audited("x @ x"), audited("torch.sigmoid(x)")]
    table = audit_table(audits)
    assert table.schema == AUDIT_SCHEMA
    assert [TaskAudit.from_row(row) for row in table.to_pylist()] == audits


@pytest.mark.parametrize("task", BUNDLED, ids=[task.id for task in BUNDLED])
def test_bundled_tasks_are_clean(task: Task) -> None:
    audit = audit_task(task)
    assert audit.is_clean, audit

"""Roles land on the types of GPUs that they ask for, and say what they wait for if there are too few."""

from __future__ import annotations

from typing import Any

import pytest

from tests.own_ray import printed_by

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    return printed_by("tests.orchestration.fleet.typed_cluster", 400)


def test_every_evaluator_is_on_a_gpu_of_its_architecture(found: dict[str, Any]) -> None:
    assert found["judged"]["types"] == {"A100": ["A100", "A100"], "L40S": ["L40S"]}


def test_verdicts_carry_the_architecture_on_which_they_were_reached(found: dict[str, Any]) -> None:
    for arch in ("A100", "L40S"):
        assert found["judged"]["verdicts"][arch] == [["log_softmax", arch, "ok"], ["wrong_axis", arch, "wrong"]]


def test_a_step_is_judged_where_its_rewards_are_and_its_right_programs_where_they_are_drawn(
    found: dict[str, Any],
) -> None:
    both = {arch: [["log_softmax", arch, "ok"], ["wrong_axis", arch, "wrong"]] for arch in ("cpu", "A100")}
    assert found["judged"]["step"] == {**both, "L40S": [["log_softmax", "L40S", "ok"]]}


def test_a_jump_is_confirmed_by_the_second_gpu_of_its_type_and_says_so_if_there_is_none(found: dict[str, Any]) -> None:
    confirmed, alone = (found["judged"]["confirmed"][arch] for arch in ("A100", "L40S"))
    assert confirmed.get("confirmed_by", "") not in ("", confirmed["device"]), (
        confirmed["outcome"],
        confirmed["findings"],
    )
    assert confirmed["outcome"] == "suspect" if confirmed["findings"] else "ok"
    assert "confirmed_by" not in alone


@pytest.mark.parametrize("share", ["none", "training"])
def test_engines_and_learner_are_on_the_gpus_that_are_named_for_them(found: dict[str, Any], share: str) -> None:
    assert found["placed"][share] == {"engine": "H100", "learner": "H100", "evaluator": "L40S"}


def test_a_type_that_the_cluster_has_not_ends_the_run_with_what_it_has(found: dict[str, Any]) -> None:
    assert found["refused"]["absent"] == (
        "evaluation.archs.T4: the cluster has no T4, and it does not scale; it has 2 x A100, 2 x H100, 1 x L40S: name "
        "another type, or add nodes with the label ray.io/accelerator-type=T4"
    )
    assert found["refused"]["absent learner"].startswith("placement.learner: the cluster has no B200, and")


def test_an_evaluator_on_another_gpu_refuses_to_measure(found: dict[str, Any]) -> None:
    assert "evaluator.arch is A100, but this process sees the architecture L40S" in found["refused"]["wrong GPU"]


def test_an_evaluator_without_a_gpu_waits_says_for_what_and_starts_when_a_node_comes(found: dict[str, Any]) -> None:
    outgrown = found["outgrown"]
    assert "waiting for 1 x A100: 0 free, 2 in the cluster" in outgrown["message"]
    assert outgrown["restarts"] == 0, "waiting is no failed start"
    assert outgrown["ready"] == 3
    assert found["capacity"] == {"A100": 3, "L40S": 1, "H100": 2}

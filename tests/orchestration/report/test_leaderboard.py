"""Rankings under our verdicts: the right ones first, by speed, and no order where intervals cannot tell."""

from __future__ import annotations

import json

from evaluators.records import Outcome
from orchestration.report.leaderboard import Board, Ranking, board_as_json, boards_of
from tests.orchestration.report.entrants import entrant, several_sources


def board(**options: object) -> Board:
    (made,) = boards_of(several_sources(), **options)  # type: ignore[arg-type]
    return made


def ranking(task: str, of: Board | None = None) -> Ranking:
    return next(each for each in (of or board()).rankings if each.task == task)


def test_right_programs_are_ranked_by_speed_and_the_others_follow_without_a_rank() -> None:
    places = ranking("level1/2").places
    assert [(place.entrant.source, place.rank) for place in places] == [
        ("beta", 1), ("beta", 2), ("alpha", None), ("gamma", None),
    ]  # fmt: skip
    assert [place.entrant.verdict.outcome for place in places][2:] == [Outcome.HACK, Outcome.WRONG]


def test_a_program_whose_interval_reaches_into_the_firsts_is_level_with_it() -> None:
    first, second, third = ranking("level1/1").places
    assert (first.is_tied, second.is_tied, third.is_tied) == (False, True, False)
    assert (second.rank, second.entrant.source) == (2, "beta")


def test_tasks_come_in_the_order_of_their_numbers() -> None:
    assert [each.task for each in board().rankings] == ["level1/1", "level1/2", "level1/10", "level2/1", "level2/2"]


def test_a_source_counts_over_all_tasks_that_can_tell() -> None:
    of = {each.source: each for each in board().sources}
    alpha, beta, gamma = of["alpha"], of["beta"], of["gamma"]
    assert (alpha.tasks, alpha.programs, alpha.right.value) == (3, 4, 0.25)
    assert (beta.tasks, beta.right.value, beta.faster.value) == (2, 0.5, 0.5)
    assert (gamma.right.value, gamma.faster.value) == (0.5, 0.25), "slower than the reference is right, not faster"
    assert (alpha.first, beta.first, gamma.first) == (1, 2, 1), "both lead the first task"
    assert alpha.speedups.most == 3.0, "40x is on a task that cannot tell"
    assert alpha.outcomes == {"ok": 1, "hack": 1, "runtime_error": 1}
    assert [each.source for each in board().sources] == ["beta", "alpha", "gamma"]


def test_a_task_that_cannot_tell_is_shown_and_says_so() -> None:
    shown = ranking("level2/2")
    assert "cannot tell a good program from a cheat" in shown.blind
    assert shown.places[0].rank == 1


def test_only_the_best_of_a_source_are_ranked_and_identical_programs_once() -> None:
    assert [place.entrant.source for place in ranking("level1/2", board(top=1)).places] == ["beta", "alpha", "gamma"]
    (twice,) = boards_of([*several_sources(), *several_sources()])
    assert board_as_json(twice) == board_as_json(board())


def test_architectures_are_never_ranked_together() -> None:
    entrants = [entrant("a", "level1/1", 2.0, arch="H100"), entrant("b", "level1/1", 3.0, arch="cpu")]
    assert [(each.arch, len(each.rankings[0].places)) for each in boards_of(entrants)] == [("H100", 1), ("cpu", 1)]


def test_the_ranking_may_be_over_the_best_baseline() -> None:
    assert ranking("level1/1", board(over="best")).places[0].speedup.value == 2.25


def test_common_tasks_are_those_that_every_source_has() -> None:
    assert [each.task for each in board(common=True).rankings] == ["level1/1", "level1/2"]
    apart = [entrant("a", "level1/1", 2.0), entrant("b", "level1/2", 3.0)]
    assert boards_of(apart, common=True) == []


def test_plain_data_has_no_text_of_programs_and_no_nan() -> None:
    text = json.dumps(board_as_json(board()), allow_nan=False)
    assert "class ModelNew" not in text
    assert "right, 0.01 ms" in text

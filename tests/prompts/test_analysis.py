"""An analysis is read for the exemplars, speed-ups and lessons that it repeats."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prompts.analysis import KnownTexts, exemplars_named, names_exemplar, names_speedup, speedups_named
from prompts.render import Exemplar, PromptRenderer


@pytest.mark.parametrize(
    ("analysis", "numbers"),
    [
        ("Implementation 2 is fastest.", {2}),
        ("implementations 1 and 2 both copy; Implementation #3 does not", {1, 2, 3}),
        ("Implementations 1, 2 and 4", {1, 2, 4}),
        ("Implementation 1, 2.00x, and implementation 3, 4x:", {1, 3}),
        ("The implementation launches 3 kernels.", set()),
        ("The reference implementation: 2 passes", set()),
        ("", set()),
    ],
)
def test_exemplars_are_named_by_their_number(analysis: str, numbers: set[int]) -> None:
    assert exemplars_named(analysis) == numbers


def test_an_exemplar_that_is_not_shown_is_not_named() -> None:
    assert names_exemplar("Implementation 2", 2)
    assert not names_exemplar("Implementation 3 and implementation 0", 2)


@pytest.mark.parametrize(
    ("analysis", "names"),
    [
        ("it reaches 1.52x", True),
        ("about 1.5x as fast", True),
        ("1.5 times the reference", True),
        ("2.00\u00d7 of eager", True),
        ("2x", True),
        ("1.6x", False),
        ("1.4x", False),
        ("3x", False),
        ("twice as fast", False),
        ("1.52 ms", False),
        ("v1.52x", False),
        ("reads 12 times", False),
    ],
)
def test_a_speed_up_is_named_if_it_is_one_that_the_prompt_shows_as_far_as_its_decimals_go(
    analysis: str, names: bool
) -> None:
    assert names_speedup(analysis, (1.5213, 2.0)) is names


def test_a_whole_number_is_no_rounded_speed_up() -> None:
    assert not names_speedup("2x", (1.97,))
    assert speedups_named("2x, 1.97x") == [(2.0, 0), (1.97, 2)]


@given(st.lists(st.floats(0.01, 99.0), min_size=1, max_size=3))
def test_what_the_prompt_itself_prints_is_recognised(speedups: list[float]) -> None:
    exemplars = [Exemplar(f"x = {index}", speedup) for index, speedup in enumerate(speedups)]
    prompt = PromptRenderer().contrastive("x = 9", exemplars, "cpu").split("Previous implementations:\n")[1]
    assert exemplars_named(prompt) == set(range(1, len(speedups) + 1))
    assert all(names_speedup(prompt, (speedup,)) for speedup in speedups)


def test_text_of_a_lesson_is_recognised_from_eight_words_in_a_row() -> None:
    known = KnownTexts(["One two three four five six seven eight nine ten.", "short, though"])
    assert known.share_of("one TWO three, four five six seven eight!") == 1.0
    assert known.share_of("one two three four five six seven") == 0.0, "too few to be more than chance"
    assert known.share_of("Mine: two three four five six seven eight nine, and so on, at last it ends") == 0.5
    assert known.share_of("Short though") == 1.0
    assert known.share_of(" ,. ") is None
    assert KnownTexts([]).share_of("a text of its own") == 0.0

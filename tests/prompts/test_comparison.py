"""The analysis of a contrastive lesson compares what its prompt shows, and claims nothing that it does not show."""

from __future__ import annotations

import re

import numpy as np
import pytest

from prompts.analysis import exemplars_named, names_exemplar, names_speedup, speedups_named
from prompts.comparison import Shown, compare
from prompts.render import Exemplar, PromptRenderer

SLOW = Shown(1.137, "Unroll the loop.")
FAST = Shown(2.049, "Fuse the chain into one kernel.")
WORSE = Shown(0.62, "Convert to double and back.")
REFERENCE = Shown(1.0, "", is_reference=True)
WHY = "The reference makes three passes over memory."


def prompt_of(*shown: Shown) -> str:
    exemplars = [Exemplar(f"x = {index}", one.speedup) for index, one in enumerate(shown)]
    return PromptRenderer().contrastive("class Model:\n    pass", exemplars, "cpu")


def analyses(*shown: Shown, why: str = WHY, draws: int = 300) -> list[str]:
    rng, prompt = np.random.default_rng(0), prompt_of(*shown)
    return [compare(shown, why, prompt, rng) for _ in range(draws)]


@pytest.mark.parametrize(
    "shown",
    [(SLOW, FAST), (FAST, SLOW), (REFERENCE, FAST), (WORSE, REFERENCE), (FAST,), (REFERENCE,), (WORSE, SLOW, FAST)],
)
def test_every_exemplar_is_named_with_its_speed_up_as_printed(shown: tuple[Shown, ...]) -> None:
    for analysis in analyses(*shown):
        assert exemplars_named(analysis) == set(range(1, len(shown) + 1)), analysis
        assert names_exemplar(analysis, len(shown))
        for one in shown:
            assert names_speedup(analysis, [one.speedup]), analysis
            assert one.idea in analysis
        assert WHY in analysis


def test_every_number_of_an_analysis_stands_in_its_prompt() -> None:
    shown = (
        Shown(1.1, "1. Use blocks of 4096 elements.\n2. Load each element once."),
        Shown(3.3, "It is 7.5x as fast. As implementation 9 does it, reduce in registers."),
    )
    prompt = prompt_of(*shown)
    for analysis in analyses(*shown, why="It takes 12.8 ms. Memory traffic bounds the reference, 5 times over."):
        numbers = set(re.findall(r"\d+(?:\.\d+)?", analysis))
        assert numbers <= set(re.findall(r"\d+(?:\.\d+)?", prompt)), analysis
        assert {speed for speed, _ in speedups_named(analysis)} == {1.1, 3.3}
        assert "Load each element once." in analysis, "the first sentence that claims no number of its own"
        assert exemplars_named(analysis) == {1, 2}


def test_the_fastest_is_said_to_be_ahead_wherever_it_stands() -> None:
    for shown, best in (((SLOW, FAST), 2), ((FAST, SLOW), 1), ((WORSE, REFERENCE), 2)):
        for analysis in analyses(*shown):
            named = [int(number) for number in re.findall(r"mplementation (\d)", analysis)]
            assert named[0] == best, analysis


def test_exemplars_that_differ_by_little_are_called_equally_fast() -> None:
    tied = analyses(Shown(1.50, "Fuse."), Shown(1.51, "Unroll."))
    assert all(re.search("equally|hardly|nearly the same|Neither", analysis) for analysis in tied)
    apart = analyses(SLOW, FAST)
    assert not any(re.search("equally|hardly|nearly the same|Neither", analysis) for analysis in apart)


def test_what_is_slower_than_the_reference_is_said_to_be() -> None:
    assert all(re.search("loses|slower|costs more|longer", analysis) for analysis in analyses(WORSE, FAST))
    assert not any(re.search("loses|slower|costs more|longer", analysis) for analysis in analyses(SLOW, FAST))


def test_no_text_is_worth_learning_by_heart() -> None:
    texts = analyses(SLOW, FAST)
    assert len(set(texts)) > 200
    assert max(len(text.split()) for text in texts) < 60


def test_a_comparison_of_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="needs exemplars"):
        compare((), WHY, "", np.random.default_rng(0))

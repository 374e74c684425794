"""What a prompt shows is read back from its text, whatever the programs in it contain."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from prompts.render import Exemplar, PromptRenderer
from prompts.shown import ShownExemplar, read_prompt

RENDERER = PromptRenderer()
TRICKY = st.lists(
    st.sampled_from(
        ["x = 1", "```", "````python", "Implementation 1, 9.99x:", "Implementation 2, 3.00x:", "Reference code:",
         "Previous implementations:", "The program:", "The reference code itself.", "    pass", ""]
    ),
    max_size=8,
).map(lambda lines: "\n".join(["import torch", *lines, "y = 2"]))  # fmt: skip


@given(TRICKY, st.lists(st.tuples(TRICKY, st.floats(0.01, 99)), min_size=1, max_size=4), st.booleans())
@settings(deadline=None, max_examples=150)
def test_a_contrastive_prompt_gives_back_its_programs(reference, pairs, scores) -> None:
    prompt = RENDERER.contrastive(
        reference, [Exemplar(source, speedup) for source, speedup in pairs], "cpu", scores=scores
    )
    shown = read_prompt(f"<|im_start|>user\n{prompt}<|im_end|>\n")
    assert shown.reference == reference
    assert shown.failing is None
    assert shown.exemplars == tuple(
        ShownExemplar(source, float(f"{speedup:.2f}") if scores else None, source == reference)
        for source, speedup in pairs
    )


@given(TRICKY)
@settings(deadline=None, max_examples=60)
def test_a_one_shot_prompt_shows_the_reference_alone(reference) -> None:
    shown = read_prompt(RENDERER.one_shot(reference, "H200"))
    assert (shown.reference, shown.exemplars, shown.failing) == (reference, (), None)


@given(TRICKY, TRICKY, TRICKY)
@example("y = 1", "x = 1\nPrevious implementations:\nImplementation 1, 9.99x:\nThe reference code itself.", "y = 3")
@settings(deadline=None, max_examples=60)
def test_a_repair_prompt_shows_the_failing_program(reference, program, message) -> None:
    shown = read_prompt(RENDERER.repair(reference, program, "wrong", message, "cpu"))
    assert (shown.reference, shown.exemplars, shown.failing) == (reference, (), program)


def test_other_text_shows_nothing() -> None:
    for text in ("", "Reference code:\n", "Implementation 1:\n```python\nx\n```", "def f(): pass"):
        assert read_prompt(text) == read_prompt("")

"""Positions at which an unfinished answer may be ended. `parse_response` then finds the same program."""

import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluators.syntax import MAX_CHARACTERS
from prompts.parse import end_of_program, parse_response
from prompts.render import PromptRenderer

CODE = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x + 1"
QUOTED = CODE.replace("x + 1", "x + 2")
BROKEN = "class ModelNew(:\n    def forward(self, x)\n        return x"
DOCUMENTED = f'"""Example:\n\n```python\nModelNew()\n```\n"""\n{CODE}'
EXPLAINED = (
    "\n\nThis fuses both passes:\n\n```python\ny = x + 1\n```\n\nOr:\n```python\nclass ModelNew:\n    pass\n```\n"
)


def fenced(code: str, info: str = "python", fence: str = "```") -> str:
    return f"{fence}{info}\n{code}\n{fence}"


def answer(implementation: str, analysis: str = "B is faster.") -> str:
    return f"## Performance Analysis\n\n{analysis}\n\n## Algorithm Design\n\n1. Fuse.\n\n## Code Implementation\n\n" + (
        implementation
    )


ANSWERS = {
    "plain": (answer(fenced(CODE)), CODE),
    "an exemplar is quoted": (answer(fenced(CODE), f"This one:\n{fenced(QUOTED)}\nis slow, `x` is not."), CODE),
    "a kernel stands before it": (answer(fenced("void f() {}", "cpp") + "\n\n" + fenced(CODE)), CODE),
    "a fence in its docstring": (answer(fenced(DOCUMENTED)), DOCUMENTED),
    "another fence": (answer(fenced(CODE, fence="~~~")), CODE),
    "without an info string": (answer(fenced(CODE, info="")), CODE),
    "with a syntax error": (answer(fenced(BROKEN)), BROKEN),
    "in a list": (answer("1. The module:\n   " + fenced(CODE).replace("\n", "\n   ")), CODE),
    "without headings": ("Here you are:\n" + fenced(CODE), CODE),
    "after reasoning": (f"<think>\n{fenced(QUOTED)}\n</think>\n" + answer(fenced(CODE)), CODE),
    "reasoning without its first tag": (f"## Plan\n{QUOTED}\n</think>\n" + answer(fenced(CODE)), CODE),
    "wrapped in a block": ("```markdown\n" + answer(fenced(CODE)), CODE),
    "as we would write it": (PromptRenderer().response(CODE, "B is faster.", "1. Fuse.").rstrip("\n"), CODE),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_may_end_behind_the_fence_of_its_program_and_nowhere_before(name: str) -> None:
    """However the text so far is divided into pieces."""
    text, code = ANSWERS[name]
    whole = text + EXPLAINED
    assert end_of_program(whole) == len(text)
    assert parse_response(whole[: len(text)]).code == code
    for cut in range(len(whole) + 1):
        assert end_of_program(whole[:cut]) == (len(text) if cut >= len(text) else None)


@pytest.mark.parametrize("newline", ["\r\n", "\r"])
def test_other_line_ends_will_do(newline: str) -> None:
    text = answer(fenced(CODE)).replace("\n", newline)
    assert end_of_program(text + newline + "Done.") == len(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        CODE,
        answer("As above.", fenced(QUOTED)),
        answer(f"```python\n{CODE}"),
        answer(f"```python\n{CODE}```"),
        answer(f"Use ```ModelNew``` here. {EXPLAINED[:20]}"),
        answer(fenced("class Model:\n    pass")),
        f"## Performance Analysis\n{fenced(QUOTED)}\nThe second",
        f"<think>\n{answer(fenced(CODE))}",
    ],
)
def test_without_a_complete_program_there_is_no_end(text: str) -> None:
    assert end_of_program(text) is None


def test_what_was_read_before_is_not_read_again() -> None:
    text = answer(fenced(CODE), fenced(QUOTED))
    assert end_of_program(text + EXPLAINED, text.index("## Algorithm")) == len(text)
    assert end_of_program(text + "\nDone.", len(text)) is None


PIECES = ["```", "~~~", "````", "```python", "\n", "\r\n", " ", "**", "\0", "(", "x = 1", '"""', "<think>", "</think>"]
PIECES += ["\n## Code Implementation\n", "\n## Algorithm Design\n", "class ModelNew:", "\n    pass", CODE]
PIECES += ["\n```python\n", "\n```\n", fenced(CODE), fenced(BROKEN), fenced(DOCUMENTED)]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=20).map("".join)


@settings(max_examples=300, deadline=None)
@given(TEXTS, st.data())
def test_reading_as_the_text_grows_ends_where_reading_the_whole_does(text: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=5)))
    read, found = 0, None
    for cut in [*cuts, len(text)]:
        found = end_of_program(text[:cut], read)
        if found is not None:
            break
        read = cut
    assert found == end_of_program(text)


@settings(max_examples=300, deadline=None)
@given(TEXTS, st.sampled_from(["stop", "length"]))
def test_what_comes_before_the_end_holds_a_program_that_the_parser_finds(text: str, finish_reason: str) -> None:
    end = end_of_program(text)
    if end is None:
        return
    code = parse_response(text[:end], finish_reason).code
    assert code is not None
    assert parse_response(text[:end] + "\n\nThat is all.\n", finish_reason).code == code


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet=st.characters(exclude_characters="`~#*\r\0", exclude_categories=["Cs"]), max_size=200))
def test_prose_moves_the_end_and_nothing_else(prose: str) -> None:
    if "think" not in prose and "ModelNew" not in prose:
        text = f"{prose}\n{answer(fenced(CODE))}"
        assert end_of_program(f"{text}\n{prose}") == len(text)


MEGABYTE = 1_000_000
ADVERSARIAL = {
    "bare fences": "ModelNew\n" + "```\n" * (MEGABYTE // 4),
    "open fences": "ModelNew\n" + "~~~x\n" * (MEGABYTE // 5),
    "blanks before no fence": "ModelNew\n" + " " * MEGABYTE,
    "empty lines": "ModelNew\n" * (MEGABYTE // 9),
    "blocks": fenced(CODE + "\nx = 1" * 2_000) * 60,
    "lines of blanks": "ModelNew\n" + (" " * 999 + "\n") * 1000,
    "few fences": "ModelNew\n" + ("```\nx = (\n" + "y = 1\n" * 2000) * 80,
    "unclosed strings": ("## Code Implementation\n```\nclass ModelNew:\n    '''\n" + "x\n" * 100) * 500,
    "a long program": answer(fenced(CODE + "\n" + "x = 1\n" * (MAX_CHARACTERS // 6))),
}


@pytest.mark.parametrize("name", ADVERSARIAL)
@pytest.mark.parametrize("read", [end_of_program, parse_response])
def test_an_answer_is_read_in_little_time_whatever_its_text(name: str, read: Callable[[str], object]) -> None:
    text = ADVERSARIAL[name]
    assert min(_seconds(read, text[:MAX_CHARACTERS]) for _ in range(3)) < 0.25
    assert min(_seconds(read, text) for _ in range(3)) < 1.0


def _seconds(read: Callable[[str], object], text: str) -> float:
    start = time.process_time()
    read(text)
    return time.process_time() - start

import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluators.syntax import MAX_CHARACTERS
from prompts.parse import ParsedResponse, parse_response

CODE = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x + 1"
QUOTED = CODE.replace("x + 1", "x + 2")
BROKEN = "class ModelNew(:\n    def forward(self, x)\n        return x"


def block(code: str, info: str = "python", fence: str = "```") -> str:
    return f"{fence}{info}\n{code}\n{fence}\n"


def answer(implementation: str, analysis: str = "B is faster.", design: str = "1. Fuse.") -> str:
    return (
        f"## Performance Analysis\n\n{analysis}\n\n## Algorithm Design\n\n{design}\n\n"
        f"## Code Implementation\n\n{implementation}"
    )


def test_the_three_parts_are_found() -> None:
    assert parse_response(answer(block(CODE))) == ParsedResponse("B is faster.", "1. Fuse.", CODE, None)


@pytest.mark.parametrize(
    "headings",
    [
        ("# Performance Analysis", "# Algorithm Design", "# Code Implementation"),
        ("#### 1. Performance Analysis:", "#### 2. Algorithm Design:", "#### 3. Code Implementation:"),
        ("**Performance Analysis**", "**Algorithm Design**", "**Code Implementation**"),
        ("**Performance Analysis:**", "__Algorithm Design__:", "**Code Implementation:**"),
        ("### **Performance Analysis**", "### **Algorithm Design**", "### **Code Implementation**"),
        ("PERFORMANCE ANALYSIS:", "Algorithm Design", "Code implementation"),
        ("## Step 1: Analysis", "## Step 2: Design", "## Step 3: Implementation"),
        ("##Performance Analysis", "## Algorithm Design ##", "## Code Implementation (optimised)"),
    ],
)
def test_headings_are_found_at_any_level_and_in_bold(headings: tuple[str, str, str]) -> None:
    first, second, third = headings
    parsed = parse_response(f"{first}\nB is faster.\n\n{second}\n1. Fuse.\n\n{third}\n{block(CODE)}")
    assert parsed == ParsedResponse("B is faster.", "1. Fuse.", CODE, None)


def test_text_after_a_bold_heading_belongs_to_its_section() -> None:
    long = "B is faster, " * 30 + "by far."
    parsed = parse_response(f"**Performance Analysis:** {long}\n**Algorithm Design**: Fuse.\n{block(CODE)}")
    assert parsed.analysis == long
    assert parsed.design is not None
    assert parsed.design.startswith("Fuse.")
    assert parsed.code == CODE


def test_a_sentence_that_begins_like_a_heading_is_none() -> None:
    text = answer(block(CODE), analysis="Analysis shows that B wins.\nDesign: A is simple.\nImplementation matters.")
    assert "Implementation matters." in (parse_response(text).analysis or "")


def test_missing_headings_leave_their_parts_empty() -> None:
    assert parse_response("Here you are:\n" + block(CODE)) == ParsedResponse(None, None, CODE, None)


def test_text_before_the_design_is_the_analysis_that_a_prompt_already_headed() -> None:
    parsed = parse_response(f"B is faster.\n\n## Algorithm Design\nFuse.\n## Code Implementation\n{block(CODE)}")
    assert parsed.analysis == "B is faster."


def test_empty_sections_are_none() -> None:
    parsed = parse_response(answer(block(CODE), analysis="  ", design=""))
    assert (parsed.analysis, parsed.design, parsed.code) == (None, None, CODE)


def test_the_implementation_section_comes_before_a_quoted_exemplar() -> None:
    quote_last = answer(block(CODE)) + "\n## Performance Analysis\n" + block(QUOTED)
    assert parse_response(quote_last).code == CODE
    assert parse_response(answer(block(CODE), analysis=block(QUOTED))).code == CODE


def test_the_last_block_that_defines_the_model_is_taken() -> None:
    text = answer(block(QUOTED) + "Better:\n" + block(CODE) + "Run it:\n" + block("print(ModelNew()(1))"))
    assert parse_response(text).code == CODE


def test_a_program_outside_the_implementation_section_is_better_than_none() -> None:
    assert parse_response(answer("As above.", design=block(CODE))).code == CODE


@pytest.mark.parametrize("info", ["", "py", "Python", "cuda", "cpp", "python title=model.py", " python"])
@pytest.mark.parametrize("fence", ["```", "````", "~~~"])
def test_any_fence_and_language_will_do(info: str, fence: str) -> None:
    assert parse_response(answer(block(CODE, info, fence))).code == CODE


def test_an_indented_block_is_dedented() -> None:
    indented = "\n".join("   " + line if line else line for line in block(CODE).split("\n"))
    assert parse_response(answer("1. The module:\n" + indented)).code == CODE


def test_other_languages_beside_the_program_do_not_disturb() -> None:
    text = answer(block("__global__ void f() {}", "cpp") + block(CODE) + block("pip install x", "bash"))
    assert parse_response(text).code == CODE


def test_a_fence_inside_a_string_does_not_end_the_program() -> None:
    code = f"\"\"\"Example:\n\n```python\nModelNew()\n```\n\"\"\"\n{CODE}\n\nTEXT = '''\n```\n'''"
    assert parse_response(answer(block(code)) + "\nDone.\n").code == code


def test_a_fence_inside_a_shorter_quote_does_not_swallow_what_follows() -> None:
    text = answer(block(BROKEN), analysis=block("x = (", "python")) + "\n" + block(CODE)
    assert parse_response(text).code == CODE


def test_a_forgotten_closing_fence_ends_at_the_next_heading_or_block() -> None:
    analysis = "## Performance Analysis\n```python\nfor x in"
    assert parse_response(f"{analysis}\n## Code Implementation\n{block(CODE)}").code == CODE
    assert parse_response(f"{analysis}\n{block(CODE)}").code == CODE


def test_an_answer_wrapped_in_a_markdown_block_is_unwrapped() -> None:
    parsed = parse_response("```markdown\n" + answer(block(CODE)) + "```\n")
    assert parsed == ParsedResponse("B is faster.", "1. Fuse.", CODE, None)


@pytest.mark.parametrize("finish_reason", ["stop", "length"])
def test_an_open_last_block_counts_when_it_parses(finish_reason: str) -> None:
    assert parse_response(answer("```python\n" + CODE), finish_reason).code == CODE
    assert parse_response(answer("```python\n" + CODE + "```"), finish_reason).code == CODE


@pytest.mark.parametrize("finish_reason", ["stop", "length"])
def test_an_open_last_block_that_does_not_parse_is_truncated(finish_reason: str) -> None:
    parsed = parse_response(answer("```python\n" + CODE + "\n        return (x"), finish_reason)
    assert (parsed.code, parsed.problem) == (None, "truncated")
    assert parsed.design == "1. Fuse."


def test_a_quoted_exemplar_is_not_the_answer_of_a_truncated_response() -> None:
    for text in (
        answer("```python\nimport torch\nclass Mod", analysis=block(QUOTED)),
        f"## Performance Analysis\n{block(QUOTED)}\nThe second",
        answer("", analysis=block(QUOTED)),
    ):
        parsed = parse_response(text, "length")
        assert (parsed.code, parsed.problem) == (None, "truncated")


def test_a_truncated_second_version_leaves_the_first() -> None:
    assert parse_response(answer(block(CODE) + "Or even:\n```python\nclass ModelNew("), "length").code == CODE


def test_reasoning_before_the_answer_is_dropped() -> None:
    thought = f"Perhaps\n{block(QUOTED)}\n## Code Implementation\n"
    for preamble in (f"<think>\n{thought}</think>\n\n", f"{thought}</think>", f"\n<thinking>{thought}</thinking>"):
        assert parse_response(preamble + answer(block(CODE))) == parse_response(answer(block(CODE)))
        assert parse_response(preamble + "No idea.").code is None


def test_reasoning_without_an_end_is_no_answer() -> None:
    assert parse_response(f"<think>\n{block(CODE)}", "length").problem == "truncated"
    assert parse_response(f"<think>\n{block(CODE)}").problem == "no code block"


def test_bare_code_without_fences_is_taken() -> None:
    assert parse_response(CODE).code == CODE
    assert parse_response(answer(CODE)).code == CODE
    assert parse_response(f"Here it is:\n\n{CODE}\n\nThis is faster, isn't it?").code == CODE
    assert parse_response(answer(CODE + "\n```\n")).code == CODE


def test_bare_code_that_is_cut_is_truncated() -> None:
    assert parse_response(CODE + "\n        return (x", "length").problem == "truncated"


def test_a_complete_program_with_a_syntax_error_is_left_to_the_build() -> None:
    assert parse_response(answer(block(BROKEN))).code == BROKEN


@pytest.mark.parametrize(
    "text",
    ["", "I cannot help.", answer("See above."), "```python\n```", "```python", "## Code Implementation", "`ModelNew`"],
)
def test_no_code_is_named(text: str) -> None:
    parsed = parse_response(text)
    assert (parsed.code, parsed.problem) == (None, "no code block")


@pytest.mark.parametrize(
    "code",
    [
        "class Model:\n    pass",
        "x = 'class ModelNew'",
        "def f():\n    class ModelNew:\n        pass",
        "# class ModelNew:",
    ],
)
def test_a_program_without_the_model_is_named(code: str) -> None:
    parsed = parse_response(answer(block(code)))
    assert (parsed.code, parsed.problem) == (None, "does not define ModelNew")


@pytest.mark.parametrize(
    "code",
    [
        "class Model:\n    pass\n\nModelNew = Model",
        "try:\n    import triton\nexcept ImportError:\n    class ModelNew:\n        pass",
        "if True:\n    class ModelNew:\n        pass",
    ],
)
def test_the_model_may_be_bound_in_other_ways(code: str) -> None:
    assert parse_response(answer(block(code))).code == code


def test_newlines_null_characters_and_surrogates_are_cleaned() -> None:
    assert parse_response(answer(block(CODE)).replace("\n", "\r\n")).code == CODE
    assert parse_response(answer(block(CODE)).replace("\n", "\r")).code == CODE
    assert parse_response("\ufeff" + answer(block(CODE)).replace("torch", "to\0rch")).code == CODE
    cleaned = parse_response(answer(block(CODE + "  # \ud800"))).code
    assert cleaned is not None
    assert cleaned.encode("utf-8")


def test_nothing_is_executed(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    code = f"open({str(marker)!r}, 'w')\nclass ModelNew:\n    open({str(marker)!r}, 'w')"
    assert parse_response(answer(block(code))).code == code
    assert not marker.exists()


def test_a_program_beyond_the_limit_is_refused() -> None:
    parsed = parse_response(answer(block(CODE + "\n" + "x = 1\n" * (MAX_CHARACTERS // 6))))
    assert (parsed.code, parsed.problem) == (None, f"longer than {MAX_CHARACTERS} characters")


PIECES = [
    "```",
    "~~~",
    "````",
    "```python",
    "\n",
    "\r\n",
    " ",
    "#",
    "**",
    "\0",
    "(",
    "x = 1",
    '"""',
    "<think>",
    "</think>",
]
PIECES += [
    "## Code Implementation",
    "## Algorithm Design",
    "Performance Analysis",
    "class ModelNew:",
    "\n    pass",
    CODE,
]


@settings(max_examples=200, deadline=None)
@given(
    st.one_of(st.text(), st.lists(st.sampled_from(PIECES), max_size=40).map("".join)),
    st.sampled_from(["stop", "length", "abort"]),
)
def test_any_text_gives_either_code_or_a_problem(text: str, finish_reason: str) -> None:
    parsed = parse_response(text, finish_reason)
    assert (parsed.code is None) != (parsed.problem is None)
    if parsed.code is not None:
        assert "ModelNew" in parsed.code
        assert "\0" not in parsed.code


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet=st.characters(exclude_characters="`~#*\r\0", exclude_categories=["Cs"]), max_size=200))
def test_prose_around_the_program_never_changes_it(prose: str) -> None:
    if "think" not in prose:
        assert parse_response(f"{prose}\n{answer(block(CODE))}\n{prose}").code == CODE


MEGABYTE = 1_000_000
QUARTER = MEGABYTE // 4  # enough to show quadratic time where there are many blocks
ADVERSARIAL = {
    "backticks": "`" * MEGABYTE,
    "tildes and a backtick": "~" * MEGABYTE + "`",
    "open fences": "~~~x\n" * (QUARTER // 5),
    "bare fences": "```\n" * (MEGABYTE // 4),
    "alternating fences": "```a\n~~~\n" * (QUARTER // 9),
    "unparseable blocks": "```\nx = (\n" * (QUARTER // 10),
    "long unparseable blocks": ("```\n" + "x = (" * 10_000 + "\n") * 20,
    "open model blocks": "```python\nclass ModelNew(\n" * (QUARTER // 27),
    "headings": "## Code Implementation\n" * (MEGABYTE // 23),
    "headings and blocks": "## Code Implementation\n```\nx\n```\n" * (QUARTER // 33),
    "hashes": "#" * MEGABYTE,
    "stars": "**" * (MEGABYTE // 2),
    "blanks": "## " + " " * MEGABYTE + "x",
    "blank lines": (" " * 999 + "x\n") * 1000,
    "think tags": "<think></think>" * (MEGABYTE // 15),
    "open think tags": "<think>" * (MEGABYTE // 7),
    "brackets": "```\n" + "(" * MEGABYTE,
    "braces in small blocks": ("```\n" + "{" * 190 + "\n```\n") * 1000,
    "minus signs": "```\n" + "-" * 150_000 + "1\n```",
    "attributes": "```\nx" + ".y" * 90_000 + "\n```",
    "imports": "import x\n" * (MEGABYTE // 9),
    "class lines": "class ModelNew\n" * (MEGABYTE // 15),
}


@pytest.mark.parametrize("name", ADVERSARIAL)
def test_the_time_to_read_is_bounded_whatever_the_text(name: str) -> None:
    start = time.process_time()
    parse_response(ADVERSARIAL[name])
    assert time.process_time() - start < 6.0

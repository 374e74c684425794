"""Programs are shown with their syntax and their differences, and never become markup."""

from __future__ import annotations

import html
import re

from hypothesis import given, settings
from hypothesis import strategies as st

from orchestration.report.code import difference, highlighted

PROGRAM = '''import torch
SOURCE = r"""
__global__ void k(float* a) { a[0] = 1.0f; } // <b>
"""


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x + 1  # </script>
'''
LINES = st.lists(st.sampled_from(["x = 1", "y = '<b>'", 's = """', "&amp;", "", "    return x", "# \t"]), max_size=12)


def text_of(line: str) -> str:
    return html.unescape(re.sub(r"<[^>]*>", "", line))


@given(LINES)
@settings(deadline=None, max_examples=80)
def test_every_line_keeps_its_text(lines: list[str]) -> None:
    source = "\n".join(["import torch", *lines, "end"])
    shown = highlighted(source)
    assert [text_of(line) for line in shown] == [line.rstrip().expandtabs(4) for line in source.split("\n")]
    assert all(line.count("<span") == line.count("</span>") for line in shown)


def test_python_and_the_kernels_in_its_strings_are_highlighted() -> None:
    lines = highlighted(PROGRAM)
    assert '<span class="kn">import</span>' in lines[0]
    assert '<span class="kt">void</span>' in lines[2]
    assert "&lt;b&gt;" in lines[2]
    assert "&lt;/script&gt;" in lines[-1]
    assert "</script>" not in "".join(lines)


@given(LINES, LINES)
@settings(deadline=None, max_examples=80)
def test_a_difference_leads_from_one_program_to_the_other(old: list[str], new: list[str]) -> None:
    before, after = "\n".join(["a", *old, "b"]), "\n".join(["a", *new, "b"])
    made = difference(before, after)
    lines = {"old": before.split("\n"), "new": after.split("\n")}
    for line in made.lines:
        for side, number in (("old", line.old), ("new", line.new)):
            if number is not None and not (side == "old" and line.kind == "same"):
                assert text_of(line.html) == lines[side][number - 1].rstrip().expandtabs(4)
    assert made.added - made.removed == len(lines["new"]) - len(lines["old"])
    assert made.is_empty == ([each.rstrip() for each in lines["old"]] == [each.rstrip() for each in lines["new"]])


def test_unchanged_lines_far_from_a_change_are_left_out() -> None:
    before = "\n".join(f"x{index} = {index}" for index in range(30))
    made = difference(before, before.replace("x15 = 15", "x15 = 16"))
    assert [line.kind for line in made.lines] == ["gap", *["same"] * 3, "removed", "added", *["same"] * 3, "gap"]
    assert text_of(made.lines[0].html) == "12 unchanged lines"
    assert (made.added, made.removed) == (1, 1)

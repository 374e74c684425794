"""Renders prompts from tasks and exemplars, and the response that a model should have written from a program.

The wording stands in `templates/*.j2`. Its fixed part comes first, so that engines can share the prefix. Never shortens
or edits the code it is given: the model sees exactly the code that was measured.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from configs.gpus import GPUS

TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True)
class Exemplar:
    """A scored program shown in a contrastive prompt. `speedup` is over the reference."""

    source: str
    speedup: float


@dataclass(frozen=True)
class LastProgram:
    """The latest program of a task, of which a prompt says how it fared. `outcome`: of a failure, in words. `speedup`:
    of a right one. `profile`: what was measured, a sentence each. `message`: the compiler's or the judge's."""

    source: str
    outcome: str
    speedup: float | None = None
    profile: Sequence[str] = ()
    message: str = ""


def fenced(code: str) -> str:
    """`code` as a Markdown block, under a fence longer than any run of backticks in it."""
    longest = max((len(run) for run in re.findall(r"`{3,}", code)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}python\n{code.strip(chr(10))}\n{fence}"


def quoted(text: str) -> str:
    """`text` as a Markdown quotation, so that no line of it reads as one of the prompt's own."""
    return "\n".join(f"> {line}".rstrip() for line in text.strip().splitlines())


class PromptRenderer:
    """Renders the templates of this package. A template that uses a variable it is not given raises jinja2's error."""

    def __init__(self) -> None:
        self._environment = Environment(
            loader=FileSystemLoader(TEMPLATES),
            undefined=StrictUndefined,
            autoescape=False,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters["fenced"] = fenced
        self._environment.filters["quoted"] = quoted
        self._environment.filters["speedup"] = lambda value: f"{value:.2f}x"

    def contrastive(
        self,
        reference: str,
        exemplars: Sequence[Exemplar],
        arch: str,
        *,
        scores: bool = True,
        last: LastProgram | None = None,
    ) -> str:
        """The prompt of contrastive RL (CUDA-L1 section 2.4.2), with the exemplars in the given order.

        If an exemplar is the reference itself, the prompt names it and does not print it again. Without `scores` it is
        the same prompt without the speed-ups. `last`: the task's latest program, to say how that fared. Raises
        ValueError without exemplars.
        """
        if not exemplars:
            raise ValueError("a contrastive prompt needs at least one exemplar, got none; use one_shot without them")
        shown = {"reference": reference, "exemplars": exemplars, "scores": scores, "last": last}
        return self._render("contrastive.j2", **shown, **_target(arch))

    def one_shot(self, reference: str, arch: str, last: LastProgram | None = None) -> str:
        """The prompt without exemplars, for supervised fine-tuning (CUDA-L1 section 2.2). `last`: as above."""
        return self._render("one_shot.j2", reference=reference, exemplars=(), last=last, **_target(arch))

    def repair(self, reference: str, program: str, failure: str, message: str, arch: str) -> str:
        """The prompt of a repair turn: a program that fails, the kind of its failure and the judge's message."""
        return self._render(
            "repair.j2", reference=reference, program=program, failure=failure, message=message, **_target(arch)
        )

    def response(self, code: str, analysis: str, design: str) -> str:
        """The answer that these prompts ask for: three headings, with the program in one block under the last."""
        return self._render("response.j2", code=code, analysis=analysis, design=design)

    def reward_check(self, **shown: object) -> str:
        """The question to a reward checker. It uses `reference`, `program`, `speedup`, `best`, `evidence`, `cases` and
        `token`."""
        return self._render("reward_checker.j2", **shown)

    def _render(self, name: str, **variables: object) -> str:
        return self._environment.get_template(name).render(**variables)


def _target(arch: str) -> dict[str, object]:
    """What the templates say of the processor that a program is for."""
    if arch == "cpu":
        return {"target": "a CPU", "is_gpu": False}
    about = f" ({GPUS[arch].describe()})" if arch in GPUS else ""
    return {"target": f"the {arch} GPU{about}", "is_gpu": True}

"""Turns tasks and exemplars into the text that a model reads, and a program into the text that it should have written.

The wording stands in `templates/*.j2`, the fixed part first so that engines can share its prefix. Never shortens or
edits the code it is given: what a model is shown is what was measured.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, TemplateNotFound, UndefinedError

TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True)
class Exemplar:
    """A scored program shown in a contrastive prompt. `speedup` is over the reference."""

    source: str
    speedup: float


def fenced(code: str) -> str:
    """`code` as a Markdown block, under a fence longer than any run of backticks in it."""
    longest = max((len(run) for run in re.findall(r"`{3,}", code)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}python\n{code.strip(chr(10))}\n{fence}"


class PromptRenderer:
    """Renders the three texts from a folder of Jinja templates.

    A folder of one's own replaces ours as a whole: it holds `contrastive.j2`, `one_shot.j2` and `response.j2`, which
    may include others of the same folder. Raises FileNotFoundError for a missing one, and ValueError, naming template
    and variable, where a template uses a variable that it is not given.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or TEMPLATES
        for name in ("contrastive.j2", "one_shot.j2", "response.j2"):
            if not (self._folder / name).is_file():
                raise FileNotFoundError(
                    f"{self._folder / name}: no such template; copy it from {TEMPLATES} and edit it"
                )
        self._environment = Environment(
            loader=FileSystemLoader(self._folder),
            undefined=StrictUndefined,
            autoescape=False,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters["fenced"] = fenced
        self._environment.filters["speedup"] = lambda value: f"{value:.2f}x"

    def contrastive(self, reference: str, exemplars: Sequence[Exemplar], arch: str) -> str:
        """The prompt of contrastive RL (CUDA-L1 section 2.4.2): exemplars stand in the order given.

        An exemplar that is the reference itself is named, not printed twice. Raises ValueError without exemplars.
        """
        if not exemplars:
            raise ValueError("a contrastive prompt needs at least one exemplar, got none; use one_shot without them")
        return self._render("contrastive.j2", reference=reference, exemplars=exemplars, **_target(arch))

    def one_shot(self, reference: str, arch: str) -> str:
        """The prompt without exemplars, for supervised fine-tuning (CUDA-L1 section 2.2)."""
        return self._render("one_shot.j2", reference=reference, **_target(arch))

    def response(self, code: str, analysis: str, design: str) -> str:
        """The answer that both prompts ask for: three headings, then the program in one block."""
        return self._render("response.j2", code=code, analysis=analysis, design=design)

    def reward_check(self, **shown: object) -> str:
        """The question to a reward checker: `reference`, `program`, `speedup`, `best`, `evidence`, `cases`, `token`."""
        return self._render("reward_checker.j2", **shown)

    def _render(self, name: str, **variables: object) -> str:
        try:
            return self._environment.get_template(name).render(**variables)
        except UndefinedError as error:
            known = ", ".join(sorted(variables))
            raise ValueError(f"{self._folder / name}: {error.message}; it may use {known}") from error
        except TemplateNotFound as error:
            raise FileNotFoundError(f"{self._folder / name}: includes {error.name}, which is missing") from error


def _target(arch: str) -> dict[str, object]:
    return {"arch": arch, "is_gpu": arch != "cpu"}

"""Shows how a run goes on: a live line in a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from orchestration.report import Report, print_report

_SHOWN = (
    ("success_rate", "success", "{:.0%}"),
    ("faster_rate", "faster", "{:.0%}"),
    ("mean_speedup", "mean speed-up", "{:.2f}x"),
    ("best_speedup", "best so far", "{:.2f}x"),
    ("spent/evaluations", "judged", "{:.0f}"),
    ("endpoint/cost", "cost", "{:.2f}"),
    ("held_out/success_rate", "held out: success", "{:.0%}"),
    ("held_out/faster_rate", "faster", "{:.0%}"),
    ("held_out/mean_speedup", "mean speed-up", "{:.2f}x"),
    ("reward", "reward", "{:.2f}"),
    ("teacher/answers", "answers", "{:.0f}"),
    ("teacher/lost", "lost", "{:.0f}"),
    ("teacher/prompt_tokens", "tokens asked", "{:.0f}"),
    ("teacher/completion_tokens", "answered", "{:.0f}"),
    ("teacher/cost", "cost", "{:.2f}"),
    ("train/loss", "loss", "{:.3f}"),
    ("tokens_per_second", "tokens/s", "{:.0f}"),
    ("evaluations_per_second", "evaluations/s", "{:.1f}"),
)


class Progress:
    """Shows phase, step, figures and the time left in the phase. Use as a context manager."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console()
        self._live: Live | None = None
        self._phase, self._step, self._steps = "starting", 0, 0
        self._metrics: dict[str, float] = {}
        self._durations: list[float] = []
        self._started = time.monotonic()

    def __enter__(self) -> Progress:
        if self.console.is_terminal:
            self._live = Live(self._panel(), console=self.console, refresh_per_second=4, transient=True)
            self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.__exit__(kind, error, trace)
            self._live = None

    def note(self, text: str) -> None:
        """Prints a line that stays, with the time since the start."""
        elapsed = time.strftime("%H:%M:%S", time.gmtime(time.monotonic() - self._started))
        self.console.print(f"[dim]{elapsed}[/]  {text}", highlight=False, soft_wrap=True)

    def stage(self, name: str) -> None:
        """Shows that an assessment begins."""
        self._phase, self._step, self._steps, self._durations = f"assessing {name}", 0, 0, []
        self._metrics = {}
        self._refresh()

    def assessed(self, name: str, metrics: Mapping[str, float]) -> None:
        """Prints the figures of a finished assessment."""
        self._metrics = dict(metrics)
        self.note(f"[bold]{'assessed ' + name:<28}[/] {self._figures()}")

    def rates(self, metrics: Mapping[str, float]) -> None:
        """Shows figures of the current step."""
        self._metrics.update(metrics)
        self._refresh()

    def step(self, phase: str, step: int, steps: int, metrics: Mapping[str, float]) -> None:
        """Prints the figures of a finished training step. `steps`: the most steps that the phase takes."""
        if phase != self._phase:
            self._durations = []
        self._phase, self._step, self._steps, self._metrics = phase, step + 1, steps, dict(metrics)
        self._durations.append(metrics.get("step_seconds", 0.0))
        self.note(f"[bold]{phase:<20}[/] {step + 1:>3}/{steps:<3} {self._figures()}")
        self._refresh()

    def report(self, report: Report) -> None:
        """Prints the tables of a finished run, and ends the live line."""
        if self._live is not None:
            self._live.stop()
            self._live = None
        print_report(report, self.console)

    def _figures(self) -> str:
        shown = [f"{label} {form.format(self._metrics[name])}" for name, label, form in _SHOWN if name in self._metrics]
        seconds = self._metrics.get("step_seconds")
        return "  ".join([*shown, f"{seconds:.1f} s"] if seconds else shown)

    def _time_left(self) -> str:
        """The time left in the phase, estimated from its steps so far."""
        if not self._durations or self._step >= self._steps:
            return ""
        seconds = sum(self._durations) / len(self._durations) * (self._steps - self._step)
        return f"{int(seconds) // 60}:{int(seconds) % 60:02d} left in this phase"

    def _panel(self) -> Table:
        table = Table.grid(padding=(0, 2))
        place = f"{self._step}/{self._steps}" if self._steps else ""
        table.add_row(Text(self._phase, "bold cyan"), place, Text.from_markup(self._figures()), self._time_left())
        return table

    def _refresh(self) -> None:
        if self._live is not None:
            self._live.update(self._panel())

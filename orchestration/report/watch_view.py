"""What is seen of a run as text: a view for a terminal, which is complete without colour, or one line a step."""

from __future__ import annotations

from collections.abc import Iterator

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from evaluators.records import Outcome
from orchestration.report import format as fmt
from orchestration.report.keys import is_training
from orchestration.report.sparks import trend
from orchestration.report.view import PhaseLine, View

_COLOURS = {
    Outcome.OK: "green", Outcome.WRONG: "yellow", Outcome.BUILD_ERROR: "blue", Outcome.RUNTIME_ERROR: "magenta",
    Outcome.TIMEOUT: "cyan", Outcome.SUSPECT: "bright_red", Outcome.HACK: "red", Outcome.INFRA: "bright_black",
}  # fmt: skip
_FILLS = "█▓▒░▚▞▤▥"  # tell the shares apart without colour
_BAR, _TREND = 48, 60
_BEST = 12
_TIMES = (("generate_seconds", "generation"), ("train/seconds", "optimiser"), ("sync_seconds", "weights"))


def render_view(view: View, height: int = 0) -> RenderableType:
    """Everything that is seen of a run. `height`: rows of the terminal, which bound the list of programs; 0: none."""
    parts: list[RenderableType] = [_head(view)]
    parts += [Text(f"! {line}", "bold yellow") for line in view.warnings]
    if view.lines:
        parts += ["", _phases(view)]
    parts += [line for line in (_times(view), _busy(view)) if line is not None]
    if view.pulse is not None and view.pulse.roles:
        parts += ["", _roles(view)]
    if view.outcomes:
        parts += ["", _outcomes(view)]
    if view.trends:
        parts += ["", _trends(view)]
    if view.best:
        used = 16 + len(view.lines) + len(view.warnings) + (len(view.pulse.roles) if view.pulse else 0)
        parts += ["", _programs(view, max(min(_BEST, height - used), 3) if height else _BEST)]
    if view.caught:
        caught = ", ".join(f"{kind} {count}" for kind, count in view.caught.items())
        parts += ["", Text.assemble(("caught by the guard  ", "bold"), caught)]
    return Group(*parts)


def print_view(view: View, console: Console) -> None:
    """Prints the view, 120 columns wide without colour if the console is no terminal."""
    if not console.is_terminal:
        console = Console(file=console.file, width=120, no_color=True)
    console.print(render_view(view), highlight=False)


def lines_since(before: View | None, view: View) -> Iterator[str]:
    """A line for what is new: each step that was taken, each assessment, each warning, and how the run ended."""
    if before is None:
        yield f"{view.name}: {view.activity}{f', {_doing(view)}' if _doing(view) else ''}"
    known = {line.key: line.done for line in before.lines} if before else {}
    for line in view.lines:
        if line.done > known.get(line.key, 0):
            yield _line(line, view)
    for warning in view.warnings:
        if before is None or _without_numbers(warning) not in map(_without_numbers, before.warnings):
            yield f"! {warning}"


def expected(view: View) -> str:
    """When the run, or its phase, is expected to end; empty if nothing is known of that."""
    left = view.remaining
    if view.ended:
        return ""
    if left.run is not None:
        return f"ends in about {fmt.duration(left.run)}"
    if left.phase is None:
        return ""
    then = f", then {', '.join(left.unknown)}" if left.unknown else ""
    return f"this phase ends in about {fmt.duration(left.phase)}{then}"


def _head(view: View) -> Text:
    colour = "green" if not view.ended or view.ended == "finished" else "bold red"
    head = Text.assemble((view.name, "bold"), "  ", (view.activity, colour), f"  ({view.place})\n")
    facts = [fact for fact in (_doing(view), expected(view)) if fact]
    if view.judged_a_minute is not None:
        facts.append(f"{view.judged_a_minute:.3g} judged a minute")
    if "tokens_per_second" in view.latest:
        facts.append(f"{view.latest['tokens_per_second']:,.0f} tokens/s")
    if view.since_commit is not None and not view.ended:
        facts.append(f"committed {fmt.duration(view.since_commit)} ago")
    return head.append("  ·  ".join([*facts, f"{view.policy.rstrip('/').rpartition('/')[2]} on {view.arch}"]))


def _doing(view: View) -> str:
    if view.ended or not view.phase:
        return ""
    return f"{view.phase}, step {view.step} of {view.steps}" if view.steps else view.phase


def _phases(view: View) -> Table:
    table = _table("phase", "steps", "s a step", "success", "faster", "mean speed-up", "held out: success")
    for line in view.lines:
        done = str(line.done) if line.steps <= 1 else f"{line.done}/{line.steps}"
        seconds = fmt.NOTHING if line.seconds is None else f"{line.seconds:.1f}"
        style = "" if is_training(line.key) else "dim"
        shares = (fmt.share(line.success), fmt.share(line.faster), fmt.speed(line.mean_speedup))
        table.add_row(line.label, done, seconds, *shares, fmt.share(line.held_out_success), style=style)
    return table


def _times(view: View) -> Text | None:
    seconds = view.latest.get("step_seconds")
    if seconds is None or view.step_of is None:
        return None
    parts = [f"{label} {view.latest[name]:.1f} s" for name, label in _TIMES if name in view.latest]
    detail = f": {', '.join(parts)}" if parts else ""
    return Text.assemble((f"\n{view.step_of[0]}, step {view.step_of[1] + 1}  ", "bold"), f"{seconds:.1f} s{detail}")


def _busy(view: View) -> Text | None:
    if not view.busy:
        return None
    seconds = view.latest.get("step_seconds", 0.0)
    parts = [f"{role} {share * seconds:.1f} s ({share:.0%})" for role, share in view.busy.items()]
    return Text.assemble(("at work in it  ", "bold"), ", ".join(parts))


def _roles(view: View) -> Table:
    assert view.pulse is not None
    table = _table("now", "ready", "queue", "in work", "busy", "lost")
    for role in view.pulse.roles:
        ready = f"{role.ready}/{role.actors}"
        items = (str(role.queued), str(role.in_work)) if role.name != "learner" else (fmt.NOTHING, fmt.NOTHING)
        table.add_row(role.name, ready, *items, f"{role.busy:.0%}", str(role.lost))
    return table


def _outcomes(view: View) -> Text:
    whole = sum(view.outcomes.values()) or 1.0
    bar, legend = Text(), Text()
    for index, (name, count) in enumerate(view.outcomes.items()):
        fill, colour = _FILLS[index % len(_FILLS)], _COLOURS.get(name, "white")  # type: ignore[call-overload]
        bar.append(fill * round(_BAR * count / whole), colour)
        legend.append(f"  {fill} ", colour).append(f"{name} {count / whole:.1%}")
    return Text.assemble((f"outcomes of {view.outcomes_of}  ", "bold"), bar, "\n", legend)


def _trends(view: View) -> Table:
    table = _table("by training step", "first", "last", "")
    table.columns[3].justify = "left"
    for name, values in view.trends.items():
        known = [value for value in values if value is not None]
        write = fmt.speed if name == "mean speed-up" else _plain if name == "reward" else fmt.share
        table.add_row(name, write(known[0]), write(known[-1]), trend(values, _TREND))
    return table


def _programs(view: View, most: int) -> Table:
    table = _table("best programs", "over eager", "over the best baseline")
    for one in view.best[:most]:
        table.add_row(one.task, fmt.speed(one.over_eager), fmt.speed(one.over_best))
    if len(view.best) > most:
        table.caption, table.caption_justify = f"and {len(view.best) - most} more", "left"
    return table


def _line(line: PhaseLine, view: View) -> str:
    place = f"{line.done}/{line.steps}" if line.steps > 1 else ""
    figures = [
        f"{name} {text}"
        for name, text in (
            ("success", fmt.share(line.success)),
            ("faster", fmt.share(line.faster)),
            ("mean speed-up", fmt.speed(line.mean_speedup)),
            ("held out: success", fmt.share(line.held_out_success)),
        )
        if text != fmt.NOTHING
    ]
    if line.seconds is not None:
        figures.append(f"{line.seconds:.1f} s")
    if is_training(line.key):
        if view.best:
            figures.append(f"best so far {fmt.speed(view.best[0].over_best)}")
        figures += [text for text in (expected(view),) if text]
    return f"{line.label:<20} {place:>7}  {'  '.join(figures)}".rstrip()


def _plain(value: float | None) -> str:
    return fmt.NOTHING if value is None else f"{value:.2f}"


def _without_numbers(text: str) -> str:
    return "".join(letter for letter in text if not letter.isdecimal())


def _table(first: str, *columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    table.add_column(first, no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    return table

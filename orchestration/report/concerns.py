"""What somebody who watches a run ought to look at, as lines. Pure functions over what is seen of it."""

from __future__ import annotations

from collections.abc import Iterator

from evaluators.records import Outcome
from orchestration.report.view import View
from orchestration.run.pulse import FINISHED, Pulse

_STILL_SECONDS = 120.0  # without a move, at least, before that is worth a word
_STILL_SHARE = 4  # of the time after which the run ends itself
_STILL_STEPS = 3  # lengths of a step
_MANY_RECORDS = 200  # that wait for MLflow


def concerns_of(view: View, stall_minutes: float, last: Pulse | None, waiting: int, now: float) -> Iterator[str]:
    """`last`: the last pulse, fresh or not. `waiting`: records for MLflow. `now`: seconds since 1970."""
    if view.ended not in ("", FINISHED):
        yield f"{view.ended}{f': {view.message}' if view.message else ''}; `warpsmith run` continues it"
    if not view.ended:
        yield from _of_process(view, stall_minutes, last, now)
    if view.set_aside:
        yield f"{view.set_aside} program(s) lost too many workers and are set aside"
    if infra := int(view.outcomes.get(Outcome.INFRA, 0)):
        yield f"{infra} verdict(s) could not be measured, for no fault of the program (infra)"
    if skipped := sum(value for name, value in view.latest.items() if name.endswith("skipped_steps")):
        yield f"{skipped:.0f} optimiser step(s) skipped in the last step, since the gradient was not finite"
    if view.latest.get("groups_with_signal", 1.0) == 0.0:
        yield "no group of the last step had rewards that differ, so it taught nothing"
    if waiting >= _MANY_RECORDS:
        yield f"{waiting} records wait for MLflow; does it answer?"


def _of_process(view: View, stall_minutes: float, last: Pulse | None, now: float) -> Iterator[str]:
    """Of the process that runs, and its roles."""
    limit, patience = 60.0 * stall_minutes, _STILL_STEPS * view.latest.get("step_seconds", 0.0)
    if view.still >= max(_STILL_SECONDS, min(patience, limit / _STILL_SHARE) if limit else patience):
        end = f"; after {stall_minutes:g} min the run ends itself (stall_minutes)" if limit else ""
        yield f"nothing has moved for {view.still / 60:.0f} min{end}"
    if last is not None and view.pulse is None:
        yield f"the process has said nothing of itself for {max(now - last.time, 0.0) / 60:.0f} min"
    if view.pulse is None:
        return
    if lost := [f"{role.lost} {role.name}" for role in view.pulse.roles if role.lost]:
        yield f"lost and replaced since the process began: {', '.join(lost)}"
    for role in view.pulse.roles:
        if role.actors and not role.ready and (items := role.queued + role.in_work):
            yield f"{role.name}: none of {role.actors} is ready, and {items} item(s) wait"

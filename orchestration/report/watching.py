"""A run as it stands at this moment, for those who watch it. Only reads, and reads each stored step once."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from configs.schema import RunConfig
from orchestration.report.concerns import concerns_of
from orchestration.report.effort import ROLES, UTILISATION
from orchestration.report.expected import remaining_of
from orchestration.report.keys import ASSESSMENT, is_training, label_of, phase_order, split_key
from orchestration.report.view import Best, PhaseLine, View
from orchestration.run.directory import RunDirectory
from orchestration.run.kernels import Kernel
from orchestration.run.outside import how_it_ended, is_fresh, most_steps, process_seen
from orchestration.run.pulse import Pulse, read_pulse
from orchestration.run.spool import FOLDER as SPOOL
from orchestration.run.state import RunState, phase_key

_Figures = Mapping[str, float]
_RATE_SECONDS = 300.0  # over which the rate of verdicts is taken
_OF_GROUPS = ("", "held_out/", "marked/")


@dataclass
class Watch:
    """Looks at one run again and again. `clock`: seconds since 1970."""

    run: RunDirectory
    place: str
    clock: Callable[[], float] = time.time
    _steps: dict[tuple[str, int], tuple[int, _Figures]] = field(default_factory=dict)
    _kernels: dict[str, tuple[int, Kernel]] = field(default_factory=dict)
    _beats: list[tuple[float, float, int]] = field(default_factory=list)  # time, start of the process, verdicts

    def look(self) -> View:
        """The run now. Raises OSError, RunDirectoryError or ConfigError if it cannot be read."""
        run, now = self.run, self.clock()
        config, state, pulse = run.read_config(), run.read_state() or RunState(), read_pulse(run.storage)
        figures, best = self._read_steps(), self._read_kernels(config)
        holder = process_seen(run, pulse, now)
        ended = "" if holder and not state.finished else how_it_ended(pulse, is_finished=state.finished)
        fresh = pulse if pulse is not None and not ended and is_fresh(pulse, now) else None
        lines = tuple(_lines(config, state, figures))
        training = [(key, step) for key, step in figures if is_training(key)]
        latest_of = max(training, key=lambda each: (phase_order(each[0]), each[1]), default=None)
        latest = figures[latest_of] if latest_of else {}
        phase, step, steps = _under_way(config, state, fresh)
        still = self._still(now, fresh)
        outcomes_of, outcomes = _outcomes(figures, training)
        view = View(
            name=config.name,
            place=self.place,
            policy=config.policy.model,
            arch=config.evaluator.arch,
            activity=f"running as process {holder}" if holder and not ended else ended,
            ended=ended,
            message=pulse.message if ended and pulse else "",
            phase=phase,
            step=step,
            steps=steps,
            lines=lines,
            step_of=latest_of,
            latest=latest,
            busy={role: latest[f"{UTILISATION}{role}"] for role in ROLES if f"{UTILISATION}{role}" in latest},
            outcomes=outcomes,
            outcomes_of=outcomes_of,
            trends=_trends(figures, training),
            best=best,
            caught=_caught(figures.values()),
            pulse=fresh,
            judged_a_minute=self._rate(fresh, latest),
            since_commit=max(now - run.committed_at(), 0.0) if state.phase else None,
            still=still,
            remaining=remaining_of(config, state, figures),
            set_aside=run.set_aside.count(),
        )
        waiting = len(run.storage.times(SPOOL))
        return replace(view, warnings=tuple(concerns_of(view, config.stall_minutes, pulse, waiting, now)))

    def _read_steps(self) -> dict[tuple[str, int], _Figures]:
        """The metrics of every step. Only what was written since the last look is read."""
        written = self.run.metrics.written()
        for key, at in written.items():
            if self._steps.get(key, (None,))[0] != at:
                with suppress(FileNotFoundError):  # a run that is begun anew removes them
                    rows = self.run.metrics.read_step(*key).to_pylist()
                    self._steps[key] = at, {row["name"]: row["value"] for row in rows}
        self._steps = {key: kept for key, kept in self._steps.items() if key in written}
        return {key: figures for key, (_, figures) in self._steps.items()}

    def _read_kernels(self, config: RunConfig) -> tuple[Best, ...]:
        written = self.run.kernels.written()
        for path, at in written.items():
            if self._kernels.get(path, (None,))[0] != at and (kernel := self.run.kernels.read_at(path)) is not None:
                self._kernels[path] = at, kernel
        self._kernels = {path: kept for path, kept in self._kernels.items() if path in written}
        found = []
        for _, kernel in self._kernels.values():
            speeds = {name: each.value for name, each in kernel.verdict.speedups.items()}
            if kernel.arch == config.evaluator.arch and speeds:
                found.append(Best(kernel.task_id, kernel.arch, speeds.get("eager"), min(speeds.values())))
        return tuple(sorted(found, key=lambda each: (-each.over_best, each.task)))

    def _still(self, now: float, pulse: Pulse | None) -> float:
        """Seconds without a move: as the pulse says, as the watchdog counts; else since rows or the state changed."""
        if pulse is not None:
            return pulse.still + max(now - pulse.time, 0.0)
        written = max((at for at, _ in self._steps.values()), default=0) * 1e-9
        moved_at = max(written, self.run.storage.written_at("state.json") * 1e-9)
        return max(now - moved_at, 0.0) if moved_at else 0.0

    def _rate(self, pulse: Pulse | None, latest: _Figures) -> float | None:
        """Verdicts a minute: between beats of the last minutes, else in the latest step."""
        if pulse is not None:
            count = sum(pulse.verdicts.values())
            self._beats = [each for each in self._beats if each[1] == pulse.began]
            if not self._beats or self._beats[-1][0] < pulse.time:
                self._beats.append((pulse.time, pulse.began, count))
            while pulse.time - self._beats[0][0] > _RATE_SECONDS:
                del self._beats[0]
            first = self._beats[0]
            if pulse.time - first[0] >= 4 * pulse.every:
                return 60.0 * (count - first[2]) / (pulse.time - first[0])
        seconds = latest.get("step_seconds") or latest.get("pipeline_seconds")
        return 60.0 * latest["measured"] / seconds if seconds and "measured" in latest else None


def _lines(config: RunConfig, state: RunState, figures: Mapping[tuple[str, int], _Figures]) -> Iterator[PhaseLine]:
    """Phases and assessments with any figures, in order, and the phase under way."""
    most, cycles = most_steps(config), config.schedule.cycles > 1
    keys = {key for key, _ in figures} | ({phase_key(state.cycle, state.phase)} if state.phase else set())
    known = [key for key in keys if is_training(key) or key.startswith(ASSESSMENT)]
    for key in sorted(known, key=lambda key: (*phase_order(key.removeprefix(ASSESSMENT)), key.startswith(ASSESSMENT))):
        of_phase = {step: each for (name, step), each in figures.items() if name == key}
        last = of_phase[max(of_phase)] if of_phase else {}
        is_assessment = key.startswith(ASSESSMENT)
        label = label_of(key.removeprefix(ASSESSMENT), cycles)
        yield PhaseLine(
            key,
            f"after {label}" if is_assessment else label,
            len(of_phase),
            1 if is_assessment else most.get(split_key(key)[1], 0),
            last.get("pipeline_seconds" if is_assessment else "step_seconds"),
            last.get("success_rate"),
            last.get("faster_rate"),
            last.get("mean_speedup"),
            last.get("held_out/success_rate"),
        )


def _under_way(config: RunConfig, state: RunState, pulse: Pulse | None) -> tuple[str, int, int]:
    """What the run does: phase or assessment, the step counted from 1, and of how many. By the pulse, else by the last
    commit."""
    if pulse is not None:
        if not pulse.phase:
            return "starting", 0, 0
        if not is_training(pulse.phase):
            return f"assessing {pulse.phase.removeprefix(ASSESSMENT)}", 0, 0
        return pulse.phase, pulse.step + 1, most_steps(config).get(split_key(pulse.phase)[1], 0)
    if not state.phase:
        return "", 0, 0
    return phase_key(state.cycle, state.phase), state.step, most_steps(config).get(state.phase, 0)


def _outcomes(
    figures: Mapping[tuple[str, int], _Figures], training: Sequence[tuple[str, int]]
) -> tuple[str, dict[str, float]]:
    """The last phase whose steps counted outcomes, and these, summed."""
    by_phase: dict[str, Counter[str]] = {}
    for key in training:
        for name, value in figures[key].items():
            if name.startswith("outcome/"):
                by_phase.setdefault(key[0], Counter())[name.removeprefix("outcome/")] += int(value)
    if not by_phase:
        return "", {}
    last = max(by_phase, key=phase_order)
    return last, {name: float(count) for name, count in by_phase[last].most_common()}


def _trends(
    figures: Mapping[tuple[str, int], _Figures], training: Sequence[tuple[str, int]]
) -> dict[str, tuple[float | None, ...]]:
    """Of the steps that sampled: the figures of SFT's first step are those of its teachers."""
    sampled = [key for key in training if "rollouts" in figures[key]]
    ordered = [figures[key] for key in sorted(sampled, key=lambda each: (phase_order(each[0]), each[1]))]
    named = {"success": "success_rate", "faster": "faster_rate", "mean speed-up": "mean_speedup", "reward": "reward"}
    found = {shown: tuple(each.get(name) for each in ordered) for shown, name in named.items()}
    return {shown: values for shown, values in found.items() if any(value is not None for value in values)}


def _caught(steps: Iterable[_Figures]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for figures in steps:
        for name, value in figures.items():
            for group in _OF_GROUPS:
                if name.startswith(f"{group}guard/"):
                    counts[name.removeprefix(f"{group}guard/")] += int(value)
    return dict(counts.most_common())

"""Which tasks a step of contrastive RL takes: the next ones of shuffled rounds, or drawn by their signal.

A group carries a signal if its responses are not all rewarded alike. Groups without one teach nothing, so tasks whose
groups carried a signal are drawn more often (`contrastive_rl.draw`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from configs.schema import ContrastiveConfig

Signals = dict[str, tuple[int, int]]
"""By task id: groups that carried a signal, and all groups."""


class TaskDraw:
    """Draws the tasks of one phase. `signals` is what it has learnt of them; a resume replaces it."""

    def __init__(self, tasks: Sequence[str], config: ContrastiveConfig, seed: int, key: str) -> None:
        """`tasks`: the ids to draw from. `seed` and `key`, the phase's, decide the order of the rounds."""
        self.signals: Signals = {}
        self._tasks, self._config, self._seed, self._key = list(tasks), config, seed, key

    def restore(self, signals: Mapping[str, Sequence[int]]) -> None:
        """Continues with the signals of a commit."""
        self.signals = {task: (carried, groups) for task, (carried, groups) in signals.items()}

    def record(self, task: str, carries_signal: bool) -> None:
        """Counts a group of a task."""
        carried, groups = self.signals.get(task, (0, 0))
        self.signals[task] = carried + carries_signal, groups + 1

    def of_step(self, step: int, rng: np.random.Generator) -> list[str]:
        """The tasks of a step, none twice."""
        wanted = self._config.tasks_per_step
        if self._config.draw == "signal":
            return self._by_signal(self._tasks, rng)[:wanted]
        return self._of_rounds(step, wanted)

    def replacements(self, taken: Sequence[str], rng: np.random.Generator) -> list[str]:
        """Further tasks, in place of groups of a step on `taken` tasks that carry no signal.

        There are some with `draw: replace` alone: a quarter of a step's tasks, and at least one.
        """
        if self._config.draw != "replace":
            return []
        others = [task for task in self._tasks if task not in taken]
        return self._by_signal(others, rng)[: max(self._config.tasks_per_step // 4, 1)]

    def _of_rounds(self, step: int, wanted: int) -> list[str]:
        """The next tasks of shuffled rounds over all of them."""
        chosen = []
        for position in range(step * wanted, (step + 1) * wanted):
            turn, index = divmod(position, len(self._tasks))
            order = np.random.default_rng([self._seed, turn, *self._key.encode()]).permutation(len(self._tasks))
            chosen.append(self._tasks[order[index]])
        return list(dict.fromkeys(chosen))

    def _by_signal(self, tasks: Sequence[str], rng: np.random.Generator) -> list[str]:
        """The tasks in random order, drawn one after the other with the share of their groups that carried a signal as
        weight; one half for a task without groups.

        The order is that of the weights' logarithms with Gumbel noise (Efraimidis and Spirakis 2006).
        """
        counts = [self.signals.get(task, (0, 0)) for task in tasks]
        weights = np.array([(carried + 0.5) / (groups + 1.0) for carried, groups in counts])
        return [tasks[index] for index in np.argsort(-np.log(weights) - rng.gumbel(size=len(tasks)))]

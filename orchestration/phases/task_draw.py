"""Which tasks a step of contrastive RL takes: the next ones of shuffled rounds, or drawn by the signal of their groups
(`contrastive_rl.draw`).

A group carries a signal if its responses are not all rewarded alike. Groups without one teach nothing, and those whose
rewards vary much teach most: with rewards of 0 and 1 the variance is greatest for a task that is solved half of the
time. What a task's groups were like changes as the policy learns, so `variation` forgets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from configs.schema import ContrastiveConfig

Signals = dict[str, tuple[int, int, float]]
"""By task id: groups that carried a signal, all groups, and how much the rewards of a group vary, as a mean over groups
that forgets (`VARIATION_DECAY`)."""

UNKNOWN = 0.5
"""What is assumed of a task without groups: the share of those with a signal, and the variation."""
VARIATION_DECAY = 0.7
"""The weight of the earlier groups in a task's variation when another one is added."""
LEAST = 0.05
"""The least weight of a task, so that none is given up for good (as GRESO keeps asking, arXiv 2506.02177)."""


class TaskDraw:
    """Draws the tasks of one phase. `signals` is what it has learnt of them; a resume replaces it."""

    def __init__(self, tasks: Sequence[str], config: ContrastiveConfig, seed: int, key: str) -> None:
        """`tasks`: the ids to draw from. `seed` and `key`, the phase's, decide the order of the rounds."""
        self.signals: Signals = {}
        self._tasks, self._config, self._seed, self._key = list(tasks), config, seed, key

    def restore(self, signals: Mapping[str, Sequence[float]]) -> None:
        """Continues with the signals of a commit, which may be of a version that did not measure the variation."""
        self.signals = {task: (int(known[0]), int(known[1]), _variation(known)) for task, known in signals.items()}

    def record(self, task: str, carries_signal: bool, variation: float = 0.0) -> None:
        """Counts a group of a task. `variation`: how much its rewards vary, in the task's own deviations."""
        carried, groups, before = self.signals.get(task, (0, 0, UNKNOWN))
        now = VARIATION_DECAY * before + (1.0 - VARIATION_DECAY) * variation
        self.signals[task] = carried + carries_signal, groups + 1, now

    def of_step(self, step: int, rng: np.random.Generator) -> list[str]:
        """The tasks of a step, none twice."""
        wanted = self._config.tasks_per_step
        if self._config.draw == "signal":
            return self._by_signal(self._tasks, rng)[:wanted]
        if self._config.draw == "variation":
            return self._by_variation(self._tasks, rng)[:wanted]
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
        """
        known = [self.signals.get(task, (0, 0, UNKNOWN)) for task in tasks]
        return _drawn(tasks, [(carried + UNKNOWN) / (groups + 1.0) for carried, groups, _ in known], rng)

    def _by_variation(self, tasks: Sequence[str], rng: np.random.Generator) -> list[str]:
        """The tasks in random order, drawn one after the other with the variation of their groups as weight."""
        known = [self.signals.get(task, (0, 0, UNKNOWN)) for task in tasks]
        return _drawn(tasks, [max(variation, LEAST) for _, _, variation in known], rng)


def _drawn(tasks: Sequence[str], weights: Sequence[float], rng: np.random.Generator) -> list[str]:
    """The tasks in the order of their weights' logarithms with Gumbel noise, which is that of drawing one after the
    other without replacement (Efraimidis and Spirakis 2006)."""
    order = np.argsort(-np.log(np.asarray(weights)) - rng.gumbel(size=len(tasks)))
    return [tasks[index] for index in order]


def _variation(known: Sequence[float]) -> float:
    """The variation in a commit's row. Without one it is the share of groups that carried a signal."""
    return float(known[2]) if len(known) > 2 else (known[0] + UNKNOWN) / (known[1] + 1.0)

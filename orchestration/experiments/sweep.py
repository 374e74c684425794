"""The file of a sweep: which configurations are run, with which seeds, and where.

    root: runs/ablation               # folder of the runs, whose names are ARM-sSEED
    arms: [vanilla, evolve, stage1]   # configurations: files beside this one, or the names of ours
    seeds: [0, 1, 2]
    settings: [evaluator.workers=2]   # key=value of all runs; may be left out
    branches: {evolve: stage1}        # arms that begin where another arm's run of the same seed ended; likewise

Every configuration is checked before the first run begins. A branch has the policy of the other arm, not one that was
trained as it was, and takes only the time of its own phases (`orchestration.setup.branch`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from configs.checks import listed
from configs.load import PACKAGE, ConfigError, changed_keys, load_config
from configs.schema import RunConfig
from orchestration.run.directory import RunDirectory
from orchestration.setup.branch import check_branch

_KEYS = ("root", "arms", "seeds", "settings", "branches")


@dataclass(frozen=True)
class Trial:
    """One run of a sweep. `words`: the arguments of `warpsmith run` or `warpsmith submit`. `origin`: the run that it is
    a branch of."""

    arm: str
    seed: int
    config: RunConfig
    words: tuple[str, ...]
    origin: Trial | None = None

    @property
    def name(self) -> str:
        """The run's."""
        return self.config.name

    @property
    def run(self) -> RunDirectory:
        """The run's directory, which may not exist yet."""
        return RunDirectory(self.config.root, self.config.name)

    def is_finished(self) -> bool:
        """Whether the run is finished in this very configuration."""
        if not self.run.exists():
            return False
        state, stored = self.run.read_state(), self.run.read_stored_config()
        return state is not None and state.finished and not changed_keys(stored.config, self.config)


@dataclass(frozen=True)
class Sweep:
    """The runs of a sweep: all arms with the first seed, then all with the next one, so that what is there at any time
    can be compared."""

    name: str
    arms: tuple[str, ...]
    seeds: tuple[int, ...]
    trials: tuple[Trial, ...]


def read_sweep(path: Path, overrides: Sequence[str] = ()) -> Sweep:
    """The sweep in a YAML file, with `key=value` overrides of all runs. Raises ConfigError."""
    settings = _parse(path)
    arms, seeds = settings["arms"], settings["seeds"]
    common = [*settings.get("settings", []), *overrides]
    found = {arm: _find(path, arm) for arm in arms}
    stems = {arm: Path(place).stem for arm, place in found.items()}
    if twice := sorted({stem for stem in stems.values() if list(stems.values()).count(stem) > 1}):
        raise ConfigError(f"{path}: two arms are named {twice[0]}: their runs would be one; rename a file")
    trials: list[Trial] = []
    for seed in seeds:
        of_seed: dict[str, Trial] = {}  # by arm, in the order of the file
        for arm in arms:
            words = (found[arm], f"root={settings.get('root', f'runs/{_stem(path)}')}", *common)
            origin = of_seed.get(settings.get("branches", {}).get(arm))
            of_seed[arm] = _trial(path, stems[arm], seed, words, origin)
        trials += of_seed.values()
    return Sweep(_stem(path), tuple(stems.values()), tuple(seeds), tuple(trials))


def _trial(path: Path, arm: str, seed: int, common: Sequence[str], origin: Trial | None) -> Trial:
    words = (*common, f"name={arm}-s{seed}", f"seed={seed}")
    try:
        config = load_config(words[0], words[1:])
        if origin is not None:
            check_branch(origin.config, config)
    except ConfigError as error:
        raise ConfigError(f"{path}: arm {arm}: {error}") from error
    return Trial(arm, seed, config, words, origin)


def _stem(path: Path) -> str:
    return path.name.partition(".")[0]


def _find(path: Path, arm: str) -> str:
    """The configuration that an arm means: a file relative to the sweep's, or the name of one of ours."""
    for folder in (path.parent, PACKAGE):
        for name in (arm, f"{arm}.yaml"):
            if (folder / name).is_file():
                return str(folder / name)
    raise ConfigError(f"{path}: arms: {arm} is no configuration: name a file beside this one, or one of ours")


def _parse(path: Path) -> dict[str, Any]:
    """The settings of the file. Raises ConfigError for a fault in their form."""
    try:
        settings = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{path}: cannot be read ({' '.join(str(error).split())}); give a sweep's YAML file"
        ) from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not valid YAML: {' '.join(str(error).split())}; correct the file") from error
    if not isinstance(settings, dict):
        raise ConfigError(f"{path}: a sweep must be a mapping with {listed(_KEYS)}, got {settings!r}")
    if unknown := [key for key in settings if key not in _KEYS]:
        raise ConfigError(f"{path}: unknown key {unknown[0]}; a sweep has {', '.join(_KEYS)}")
    for key, kind, what in (
        ("arms", str, "configurations"),
        ("seeds", int, "whole numbers"),
        ("settings", str, "key=value"),
    ):
        values = settings.get(key, [] if key == "settings" else None)
        is_list = isinstance(values, list) and all(type(value) is kind for value in values)
        if not is_list or (key != "settings" and (not values or len(set(values)) < len(values))):
            raise ConfigError(f"{path}: {key} must be a list of {what}, each once, got {values!r}")
    if not isinstance(settings.get("root", ""), str):
        raise ConfigError(f"{path}: root must be a folder, got {settings['root']!r}")
    _check_branches(path, settings["arms"], settings.get("branches", {}))
    return settings


def _check_branches(path: Path, arms: list[str], branches: Any) -> None:
    if not isinstance(branches, dict):
        raise ConfigError(f"{path}: branches must be a mapping from arm to arm, got {branches!r}")
    for arm, origin in branches.items():
        if arm not in arms or origin not in arms[: arms.index(arm)]:
            raise ConfigError(f"{path}: branches: {arm}: {origin} must be two of arms, {origin} before {arm}")

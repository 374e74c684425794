"""A branch: a new run that begins as another run ended a phase, with other later phases. `run --from-bundle --branch`.

So several ways to go on share one policy. A branch takes over all of the run up to there: policy, moments, buffer,
lessons, verdicts, metrics and assessed stages. It says so in its state, and its published page does.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import pyarrow.parquet as pq

from configs.checks import leaves
from configs.load import ConfigError, changed_keys, may_change
from configs.schema import PHASES, RunConfig
from orchestration.run.bundle_folder import UNTOLD, Bundle
from orchestration.run.errors import BundleError
from orchestration.run.state import RunState, phase_key, to_go_on
from prompts.buffer import METADATA_KEY

_ID_DIGITS = 32
_PLACES = ("name", "root")
_LATER = ("seed", "schedule.phases", "buffer.strategy")
"""What may differ beside the keys of later phases: what is drawn from there on, and by which rule."""


def check_branch(before: RunConfig, now: RunConfig) -> None:
    """Raises ConfigError if no run of `now` can begin where a finished run of `before` ended."""
    cycles = range(1, before.schedule.cycles + 1)
    done = [phase_key(cycle, phase) for cycle in cycles for phase in before.schedule.phases]
    _refuse(before.name, _changed(before, now), now, done)
    if gone := {key for key, _, _ in leaves(before)} - {key for key, _, _ in leaves(now)}:
        raise ConfigError(f"{before.name}: {min(gone)} must stay in a branch; start a run of its own")


def branched(bundle: Bundle, before: RunConfig, now: RunConfig) -> Bundle:
    """The bundle of the branch: the bundled run's content, under an identity of its own.

    `before`: the bundled run's configuration, `now`: that of the branch. The identity depends on the run and on what is
    changed, so that the same command again goes on with the same branch. Raises BundleError if the run stands within a
    phase, and ConfigError for a key that a branch must not change.
    """
    state = RunState(**json.loads(bundle.files["state.json"]))
    completed = list(state.extra.get("completed", ()))
    if not completed or phase_key(state.cycle, state.phase) != completed[-1]:
        at = f"within {phase_key(state.cycle, state.phase)}" if state.phase else "before its first phase"
        raise BundleError(f"{bundle.folder}: a branch begins at the end of a phase, and the run stands {at}")
    changed = _changed(before, now)
    _refuse(str(bundle.folder), changed, now, completed)
    old, new = ({key: value for key, value, _ in leaves(config)} for config in (before, now))
    fixed = [(key, str(new.get(key, ""))) for key in changed if not may_change(key)]
    source = bundle.about["run"]
    own = json.dumps([source["id"], state.policy_version, now.name, fixed])
    identity = hashlib.sha256(own.encode()).hexdigest()[:_ID_DIGITS]
    origin = {
        "run": source["name"],
        "id": source["id"],
        "after": completed[-1],
        "policy_version": state.policy_version,
        "changed": [{"key": key, "before": str(old.get(key, "")), "after": str(new.get(key, ""))} for key in changed],
    }
    state = to_go_on(replace(state, tracking={}, extra={**state.extra, "branch": origin}))
    files = {**bundle.files, "state.json": json.dumps(asdict(state), indent=2).encode()}
    files.pop(UNTOLD, None)  # it is for the MLflow runs of the bundled run
    files["run.json"] = json.dumps({"id": identity}).encode()
    if "seed" in changed and state.buffer:
        files[state.buffer] = _without_generator(bundle.files[state.buffer])
    return Bundle(bundle.folder, {**bundle.about, "run": {**source, "id": identity, "name": now.name}}, files)


def _changed(before: RunConfig, now: RunConfig) -> list[str]:
    return [key for key in changed_keys(before, now) if key not in (*_PLACES, "policy.model")]


def _refuse(place: str, changed: Sequence[str], now: RunConfig, completed: Sequence[str]) -> None:
    """Raises ConfigError for a changed key that what is done already depends on."""
    phases, done = now.schedule.phases, [key.partition("-")[2] for key in completed]
    if phases[: len(done)] != done[: len(phases)] or len(phases) < len(done[: len(PHASES)]):
        raise ConfigError(
            f"{place}: schedule.phases of a branch must begin with what the run has done ({', '.join(done)}), got "
            f"{', '.join(phases)}"
        )
    later = tuple(f"{phase}." for phase in PHASES if phase not in done)
    for key in changed:
        if not (may_change(key) or key in _LATER or key.startswith(later)):
            raise ConfigError(
                f"{place}: {key} must not change in a branch, because {', '.join(completed)} depends on it; start a "
                f"run of its own"
            )
    if "seed" in changed and now.policy.model == "scratch":
        raise ConfigError(f"{place}: seed must not change in a branch, because policy.model=scratch is made of it")


def _without_generator(buffer: bytes) -> bytes:
    """The buffer's file without its random state: exemplars are drawn by the branch's own seed."""
    table = pq.read_table(io.BytesIO(buffer))
    metadata: dict[bytes, bytes] = dict(table.schema.metadata)
    kept: Mapping[str, Any] = json.loads(metadata[METADATA_KEY])
    metadata[METADATA_KEY] = json.dumps({**kept, "generator": None}).encode()
    sink = io.BytesIO()
    pq.write_table(table.replace_schema_metadata(metadata), sink)
    return sink.getvalue()

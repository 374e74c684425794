"""What a run is given besides its tasks: endpoints, a policy, verdicts of earlier runs, teachers, and its folder as an
earlier process left it. All of it is checked before anything is written, and by a dry run, too."""

from __future__ import annotations

from configs.frozen import asks_endpoint, asks_teachers, has_engines
from configs.load import ConfigError
from configs.schema import RunConfig
from orchestration.run.directory import RunDirectory
from orchestration.run.state import RunState, extend_schedule, record_changes, refuse_fixed_changes
from orchestration.setup.earlier_verdicts import check_verdicts_of
from orchestration.setup.policy import check_policy, is_of_hub
from orchestration.step.endpoint_engines import EndpointEngines
from orchestration.step.teachers import make_teachers


def check_inputs(config: RunConfig, *, hub: bool = True) -> None:
    """Raises ConfigError, PolicyError, TeacherError or TaskError for what cannot be used, and OSError for what cannot
    be read. Asks no endpoint, and reads no weights.

    `hub`: whether a policy of the hub is looked for there.
    """
    if asks_endpoint(config):
        EndpointEngines(config)  # raises for an address or a model that cannot be asked
    if has_engines(config) and (hub or not is_of_hub(config.policy.model)):
        check_policy(config.policy.model)
    check_verdicts_of(config)
    if asks_teachers(config):
        make_teachers(config)


def resumable(run: RunDirectory, config: RunConfig) -> RunState:
    """The state that the run directory holds, or the first. Raises ConfigError if the config differs from it."""
    if not run.exists():
        return RunState()
    stored = run.read_stored_config()
    if stored.losses:
        raise ConfigError(
            f"{run}: the run was started by an earlier version: {stored.losses[0]}; resume it with that "
            f"version, or choose another name=..."
        )
    before = stored.config
    refuse_fixed_changes(str(run), before, config)
    state = run.read_state() or RunState()
    return record_changes(extend_schedule(state, before, config), before, config)

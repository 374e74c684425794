"""From a bundle to a run directory that the ordinary resume takes: `warpsmith run --from-bundle`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from configs.load import parse_config
from configs.schema import RunConfig
from evaluators.audit.marks import Mark
from learners.patience import Patience
from orchestration.run.bundle_folder import Bundle, read_bundle
from orchestration.run.bundle_restore import config_of, is_in, restore
from orchestration.run.directory import RunDirectory
from orchestration.run.state import refuse_fixed_changes
from orchestration.setup.branch import branched
from orchestration.setup.requirements import check_requirements


@dataclass(frozen=True)
class Continuation:
    """A bundled run about to go on. `config`: with the overrides. `begun`: what the run directory holds before it."""

    bundle: Bundle
    config: RunConfig
    begun: RunConfig

    @classmethod
    def read(cls, folder: Path, overrides: Sequence[str], *, branch: bool = False) -> Continuation:
        """Reads and checks a bundle. Raises BundleError, or ConfigError for overrides that a resume does not allow.

        Only here the run may get another name, and another place of the same base model. `branch`: begin another run
        with what the bundled one has done (`orchestration.setup.branch`).
        """
        bundle = read_bundle(folder)
        stored = config_of(bundle)
        config = parse_config(bundle.files["config.yaml"].decode(), f"{folder}/config.yaml", overrides).config
        policy = replace(stored.policy, model=config.policy.model)
        begun = replace(stored, name=config.name, root=config.root, policy=policy)
        if branch:
            return cls(branched(bundle, begun, config), config, config)
        refuse_fixed_changes(str(folder), begun, config)
        return cls(bundle, config, begun)

    def unpack(self) -> RunDirectory:
        """The run directory, made of the bundle unless it is there already and as far as the bundle, or further.

        Raises BundleError, RunDirectoryError or TaskError; then nothing is written.
        """
        patience = Patience(self.config.storage.patience)
        run = RunDirectory(self.config.root, self.config.name, patience=patience)
        if is_in(self.bundle, run):
            return run
        files = self.bundle.files
        marks = {name: Mark.from_row(row) for name, row in json.loads(files.get("marked.json", b"{}")).items()}
        held_out = json.loads(files.get("held_out.json", b"[]"))
        check_requirements(self.bundle.about, self.config, marks, held_out, str(self.bundle.folder))
        with run.lock(self.config.storage.lease):
            if not is_in(self.bundle, run):  # another process may have made it until now
                restore(self.bundle, run, self.begun)
        return run

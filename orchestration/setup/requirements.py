"""What another machine must have to go on with a run: the same base model and the same tasks. By their checksums."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from huggingface_hub import snapshot_download

from configs.frozen import has_engines
from configs.schema import RunConfig
from evaluators.records import Task, digest_of
from learners.policy_files import LAST, fetch_policy
from orchestration.run.directory import RunDirectory
from orchestration.run.errors import BundleError
from orchestration.setup.policy import prepare_policy
from orchestration.setup.tasks import RunTasks, select_tasks

_SMALL_FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt", "*.jinja")
_WEIGHTS = ("*.safetensors", "*.bin")  # the first kind that there is
SCRATCH = "scratch"


def requirements_of(run: RunDirectory, config: RunConfig) -> dict[str, Any]:
    """The requirements of a run, as plain JSON for a manifest. Raises BundleError without its model here, and
    TaskError without its tasks."""
    model = config.policy.model
    if not has_engines(config):
        files = dict[str, str]()
    else:
        files = checksums_of(_scratch_of(run) if model == SCRATCH else _folder_of(model))
    tasks = RunTasks.of_begun_run(select_tasks(config.tasks), config.tasks, run.read_marks(), run.read_held_out())
    return {"policy": {"model": model, "files": files}, "tasks": _digest_of(tasks.assessed)}


def check_requirements(
    manifest: Mapping[str, Any], config: RunConfig, marks: Mapping[str, Any], held_out: Sequence[str], place: str
) -> None:
    """Raises BundleError if this machine has another base model or other tasks than the bundled run began with.

    `config`: with which the run goes on; its model may lie in another place. `place`: the bundle, for messages.
    """
    tasks = RunTasks.of_begun_run(select_tasks(config.tasks), config.tasks, marks, held_out)
    if _digest_of(tasks.assessed) != manifest["tasks"]:
        raise BundleError(
            f"{place}: the tasks of {config.tasks.source} are not those that the run began with; bring its task files"
        )
    model, expected = config.policy.model, manifest["policy"]["files"]
    if not has_engines(config):
        found = dict[str, str]()
    elif model == SCRATCH:
        with tempfile.TemporaryDirectory() as folder:  # it is made of the tasks, and the resume makes it again
            found = checksums_of(Path(prepare_policy(config, tasks.training, Path(folder) / "policy")))
    else:
        found = checksums_of(_folder_of(model))
    if different := sorted(name for name in expected.keys() | found if expected.get(name) != found.get(name)):
        remedy = "use the versions of the first machine" if model == SCRATCH else "give its folder as policy.model=..."
        raise BundleError(
            f"{place}: policy.model={model} is not the model that the run began with ({different[0]} differs from that "
            f"of {manifest['policy']['model']}); {remedy}"
        )


def checksums_of(folder: Path) -> dict[str, str]:
    """The SHA-256 of a model's weights, configuration and tokenizer, by the name of the file."""
    weights = next((found for kind in _WEIGHTS if (found := sorted(folder.glob(kind)))), [])
    small = sorted(path for pattern in _SMALL_FILES for path in folder.glob(pattern))
    return {path.name: _sha256(path) for path in [*small, *weights]}


def _scratch_of(run: RunDirectory) -> Path:
    """The folder of the policy that was made for a run, which nodes without a common disk find beside its state."""
    if run.local_path is None and run.storage.is_file(f"policy/{LAST}"):
        return Path(fetch_policy(run.storage.uri("policy"), patience=run.storage.patience))
    return run.local_folder / "policy"


def _folder_of(model: str) -> Path:
    """The folder of a model that is a folder, a URI of one, or an id whose files this machine has or can download."""
    if "://" in model:
        return Path(fetch_policy(model))
    if Path(model).is_dir():
        return Path(model)
    wanted = [*_SMALL_FILES, *_WEIGHTS]
    for local_only in (True, False):
        try:
            return Path(snapshot_download(model, allow_patterns=wanted, local_files_only=local_only))
        except (OSError, ValueError) as error:
            reason = " ".join(str(error).split())[:200]
    raise BundleError(f"policy.model: {model} is not on this machine ({reason}); give its folder as policy.model=...")


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest_of(tasks: Sequence[Task]) -> str:
    return digest_of(json.dumps(sorted((task.id, task.digest) for task in tasks)))

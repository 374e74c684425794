"""A run goes on with the base model and the tasks that it began with, or not at all."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from configs.schema import PolicyConfig, RunConfig, ScratchConfig, TasksConfig
from evaluators.tasks import find_task
from orchestration.run.directory import RunDirectory
from orchestration.run.errors import BundleError
from orchestration.setup.policy import prepare_policy
from orchestration.setup.requirements import check_requirements, checksums_of, requirements_of
from orchestration.setup.tasks import select_tasks
from tests.orchestration.run.bundled import small_policy


def config_of(root: Path, model: str, source: str = "bundled") -> RunConfig:
    scratch = ScratchConfig(vocab_size=300, hidden_size=32, intermediate_size=64, layers=1, heads=2, kv_heads=1)
    return RunConfig(
        name="demo",
        root=str(root),
        tasks=TasksConfig(source=source, profile="source"),
        policy=PolicyConfig(model=model, scratch=scratch),
    )


def tasks_file(path: Path, sources: Sequence[str]) -> str:
    rows = [{"level_id": 1, "task_id": index, "ref_code": source} for index, source in enumerate(sources, start=1)]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return str(path)


@pytest.fixture
def source() -> str:
    return find_task("level1/softmax").source


def test_a_model_is_known_by_its_weights_configuration_and_tokenizer(tmp_path: Path) -> None:
    folder = small_policy(tmp_path / "policy")
    before = checksums_of(folder)
    assert {"config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"} <= before.keys()
    assert checksums_of(small_policy(tmp_path / "again")) == before
    (folder / "tokenizer.json").write_text("{}")
    after = checksums_of(folder)
    assert [name for name in before if before[name] != after[name]] == ["tokenizer.json"]


def test_tasks_that_changed_are_refused(tmp_path: Path, source: str) -> None:
    model = str(small_policy(tmp_path / "policy"))
    tasks = tmp_path / "tasks.jsonl"
    config = config_of(tmp_path, model, tasks_file(tasks, [source, source.replace("dim=1", "dim=0")]))
    manifest = requirements_of(RunDirectory(tmp_path, "demo"), config)
    check_requirements(manifest, config, {}, [], "bundle")
    tasks_file(tasks, [source, source])
    with pytest.raises(BundleError, match=r"bundle: the tasks of .*tasks\.jsonl are not those that the run began with"):
        check_requirements(manifest, config, {}, [], "bundle")


def test_a_policy_from_scratch_is_made_again_of_the_tasks_and_compared(tmp_path: Path, source: str) -> None:
    config = config_of(tmp_path, "scratch", tasks_file(tmp_path / "tasks.jsonl", [source]))
    run = RunDirectory(tmp_path, "demo")
    prepare_policy(config, select_tasks(config.tasks), run.local_folder / "policy")
    manifest = requirements_of(run, config)
    check_requirements(manifest, config, {}, [], "bundle")
    config.seed = 4  # stands for another version of torch
    with pytest.raises(
        BundleError, match=r"policy\.model=scratch is not the model .* \(model\.safetensors .* versions"
    ):
        check_requirements(manifest, config, {}, [], "bundle")

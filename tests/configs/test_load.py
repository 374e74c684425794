"""A configuration is checked completely before anything runs, and any fault is reported in one line."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from configs.checks import leaves
from configs.load import (
    CHANGEABLE,
    ConfigError,
    StoredConfig,
    changed_keys,
    dump_config,
    load_config,
    may_change,
    parse_config,
)
from configs.schema import BASELINES, ONLY_ON_GPUS, ArchConfig, EvaluationConfig, RunConfig, SftConfig, TeacherConfig
from evaluators.stored.baselines import existing_baselines

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(name: str, text: str) -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return name

    return write


def error_of(path: str, *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(path, overrides)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_an_empty_file_is_the_defaults_named_after_the_file(write):
    assert load_config(write("small.yaml", "")) == RunConfig(name="small")


def test_overrides_win_over_the_file_and_the_file_over_its_base(write):
    write("base.yaml", "seed: 1\nname: low\nsft: {epochs: 7, batch_size: 3}\ntasks: {levels: [1]}\n")
    path = write("folder/top.yaml", "base: ../base.yaml\nseed: 2\nsft: {batch_size: 4}\ntasks: {levels: [2, 3]}\n")
    config = load_config(
        path, ["seed=3", "contrastive_rl.learning_rate=1e-5", "evaluator.baselines=[eager,torch_compile]"]
    )
    assert (config.seed, config.sft.epochs, config.sft.batch_size, config.tasks.levels) == (3, 7, 4, [2, 3])
    assert (config.name, config.contrastive_rl.learning_rate) == ("low", 1e-5)
    assert config.evaluator.baselines == ["eager", "torch_compile"]


def test_a_dumped_config_reads_back_as_the_same_config(write):
    config = load_config(write("a.yaml", "rollout: {cpu_cores: 0-3}\nseed: 5\n"))
    assert parse_config(dump_config(config), "config.yaml") == StoredConfig(config, ())


@pytest.mark.parametrize("path", sorted((REPOSITORY / "configs").rglob("*.yaml")), ids=lambda path: path.stem)
def test_every_config_of_the_package_loads_by_path_and_by_bare_name(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bare = str(path.relative_to(REPOSITORY / "configs").with_suffix(""))
    assert load_config(path) == load_config(bare)


BAD_VALUES = [
    ("learner: {zero_stage: 4}", "bad.yaml: learner.zero_stage must be 0, 1, 2 or 3, got 4"),
    ("seed: -1", "bad.yaml: seed must be at least 0, got -1"),
    ("reward: {resolution: 1.5}", "bad.yaml: reward.resolution must be from 0 to 1, got 1.5"),
    ("reward: {estimate: mean}", "bad.yaml: reward.estimate must be point or low, got 'mean'"),
    ("rollout: {temperature: .nan}", "bad.yaml: rollout.temperature must be a finite number, got nan"),
    ("buffer: {strategy: bukket}", "bad.yaml: buffer.strategy must be bucket, island or random, got 'bukket'"),
    ("sft: {epochs: many}", "bad.yaml: sft.epochs must be a whole number, got many"),
    ("sft: {epochs: 1.5}", "bad.yaml: sft.epochs must be a whole number, got 1.5"),
    ("sft: {epochs: }", "bad.yaml: sft.epochs must be a whole number, got null"),
    ("sft: {learning_rate: fast}", "bad.yaml: sft.learning_rate must be a number, got fast"),
    ("ray: {dashboard: maybe}", "bad.yaml: ray.dashboard must be true or false, got maybe"),
    ("name: [a]", "bad.yaml: name must be text, got ['a']"),
    (
        "policy: {model: 's3://name:word@bucket/model'}",
        "bad.yaml: policy.model has a login, which reports and manifests would show: give it by the environment of all "
        "nodes (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY)",
    ),
    ("name: ../x", "bad.yaml: name must be usable as a folder's name (letters, digits, '-', '_', '.'), got '../x'"),
    ("tasks: {levels: all}", "bad.yaml: tasks.levels must be a list of whole numbers, got all"),
    ("tasks: {source: 'bundled,'}", "bad.yaml: tasks.source must be bundled, a folder, a .jsonl or .parquet file"),
    (
        "tasks: {held_out: 0.2}",
        "bad.yaml: tasks.held_out must be a section with keys such as share, tasks, source, got",
    ),
    ("tasks: {held_out: {share: 1}}", "bad.yaml: tasks.held_out.share must be from 0 to 0.9, got 1"),
    ("sft: {min_entropy: 0.2}", "bad.yaml: sft.min_entropy needs held-out prompts to measure on: set tasks.held_out"),
    ("tasks: {levels: []}", "bad.yaml: tasks.levels must not be empty: [1, 2, 3] takes every bundled task"),
    (
        "learner: {offload_optimizer: cpu, zero_stage: 0}",
        "bad.yaml: learner.offload_optimizer=cpu needs learner.zero_stage 1, 2 or 3, got 0",
    ),
    (
        "learner: {offload_parameters: cpu, zero_stage: 2}",
        "bad.yaml: learner.offload_parameters=cpu needs learner.zero_stage 3, got 2",
    ),
    ("learner: {offload_optimizer: nvme}", "bad.yaml: learner.nvme_path must name a folder on a fast local disk"),
    ("learner: {offload_optimizer: disk}", "bad.yaml: learner.offload_optimizer must be none, cpu or nvme, got 'disk'"),
    ("learner: 3", "bad.yaml: learner must be a section with keys such as ranks, zero_stage, micro_"),
    ("schedule: {phases: [sft, sft]}", "bad.yaml: schedule.phases names sft more than once: name it once"),
    ("schedule: {phases: []}", "bad.yaml: schedule.phases must not be empty: name at least one of "),
    ("schedule: {phases: [stf]}", "bad.yaml: schedule.phases must be a list of collect, sft, "),
    ("sft: {teachers: []}", "bad.yaml: sft.teachers must not be empty while schedule.phases has sft: try [bundled]"),
    ("sft: {teachers: ['http://h/v1']}", "bad.yaml: sft.teacher_model must name the model to ask of http://h/v1, got"),
    ("evaluator: {baselines: [torch_compile]}", "bad.yaml: evaluator.baselines must contain eager, "),
    (
        "evaluator: {baselines: [eager, cudnn]}",
        "bad.yaml: evaluator.baselines must not name cudnn on evaluator.arch cpu, where only GPUs have it",
    ),
    (
        "evaluator: {arch: cpu, baselines: [eager, cuda_graph, cudnn]}",
        "bad.yaml: evaluator.baselines must not name cuda_graph or cudnn on evaluator.arch cpu",
    ),
    ("evaluator: {arch: h200}", "bad.yaml: evaluator.arch must be auto, cpu or an accelerator's name as Ray has it"),
    ("evaluator: {arch: ''}", "bad.yaml: evaluator.arch must be auto, cpu or an accelerator's name as Ray has it"),
    ("evaluator: {require_shapes: maybe}", "bad.yaml: evaluator.require_shapes must be true or false, got "),
    ("rollout: {max_tokens: 1536}", "bad.yaml: rollout.max_tokens must be less than policy.max_length (1536)"),
    (
        "rollout: {temperature: 0}",
        "bad.yaml: rollout.temperature must be at least 0.01 while schedule.phases has contra",
    ),
    ("rollout: {temperature: 0.005}", "bad.yaml: rollout.temperature must be at least 0.01 while schedule.phases has "),
    ("rollout: {top_p: 0.9}", "bad.yaml: rollout.top_p is gone, leave it out (it is always 1.0)"),
    ("rollout: {top_k: 20}", "bad.yaml: unknown key rollout.top_k; "),
    ("rollout: {repetition_penalty: 1.1}", "bad.yaml: unknown key rollout.repetition_penalty; "),
    ("rollout: {tensor_parallel: 4}", "bad.yaml: rollout.tensor_parallel must divide policy.scratch.heads (6)"),
    ("policy: {scratch: {hidden_size: 190}}", "bad.yaml: policy.scratch.hidden_size must be a multiple of"),
    ("policy: {scratch: {kv_heads: 4}}", "bad.yaml: policy.scratch.heads must be a multiple of"),
    ("buffer: {exemplars: 65}", "bad.yaml: buffer.exemplars must be at most buffer.capacity (64), got 65"),
    (
        "learner: {sequence_parallel: 2}",
        "bad.yaml: learner.ranks must be a multiple of learner.sequence_parallel (2), got",
    ),
    ("learner: {ranks: 4, min_ranks: 3, sequence_parallel: 2}", "bad.yaml: learner.min_ranks must be a multiple of"),
    (
        "learner: {ranks: 2, sequence_parallel: 2, attention: padded}",
        "bad.yaml: learner.sequence_parallel=2 needs packed",
    ),
    ("contrastive_rl: {minibatches: 129}", "bad.yaml: contrastive_rl.minibatches must be at most tasks_per_step x"),
    ("seed: ${oc.env:NO_SUCH_VARIABLE}", "bad.yaml: seed has no usable value: "),
    ("learner: {zero_stag: 1}", "bad.yaml: unknown key learner.zero_stag; did you mean learner.zero_stage?"),
    ("group_size: 4", "bad.yaml: unknown key group_size; did you mean contrastive_rl.group_size?"),
    (
        "reward: {qqq: 4}",
        "bad.yaml: unknown key reward.qqq; reward has baseline, worth, estimate, max, resolution",
    ),
    ("seed: 1\nseed: 2", "bad.yaml, line 2: not valid YAML: found duplicate key seed; correct the line"),
    ("seed: [1\nname: x", "bad.yaml, line 2: not valid YAML: "),
    ("seed: ${x", "bad.yaml: not valid YAML: "),
    ("[1, 2]", "bad.yaml: a config must be a mapping of keys to values, got [1"),
    ("word", "bad.yaml: a config must be a mapping of keys to values, got word"),
    ("base: gone.yaml", "bad.yaml: base must name a file relative to this one, got gone.yaml: no such file"),
    ("base: [a]", "bad.yaml: base must be a path relative to this file, got ['a']"),
    ("base: bad.yaml", "bad.yaml: base must not lead back to a file that extends this one; remove one `base:`"),
]


@pytest.mark.parametrize(("text", "message"), BAD_VALUES, ids=[text[:40] for text, _ in BAD_VALUES])
def test_a_bad_config_is_one_line_that_names_file_key_value_and_remedy(text, message, write):
    assert error_of(write("bad.yaml", text)).startswith(message)


BAD_OVERRIDES = [
    ("learner.zero_stage=4", "override learner.zero_stage=4: learner.zero_stage must be 0, 1, 2 or 3, got 4"),
    ("learner.zero_stage", "override learner.zero_stage: an override must read key=value, such as "),
    ("=4", "override =4: an override must read key=value"),
    ("a[0]=4", "override a[0]=4: an override must read key=value"),
    ("sft.teachers=[", "override sft.teachers=[: the value of sft.teachers is not valid YAML; quote it"),
    ("sede=4", "override sede=4: unknown key sede; did you mean seed?"),
    ("sft=4", "override sft=4: sft must be a section with keys such as epochs, batch_size, learning_rate, got 4"),
    ("seed=", "override seed=: seed must be a whole number, got null"),
]


@pytest.mark.parametrize(("override", "message"), BAD_OVERRIDES, ids=[text for text, _ in BAD_OVERRIDES])
def test_a_bad_override_is_one_line_that_names_the_override(override, message, write):
    assert error_of(write("good.yaml", "seed: 1"), override).startswith(message)


def test_an_error_names_the_file_that_set_the_key_and_not_the_one_that_extends_it(write):
    write("low.yaml", "learner: {zero_stage: 9}")
    assert error_of(write("top.yaml", "base: low.yaml")).startswith("low.yaml: learner.zero_stage ")


@pytest.mark.parametrize("arch", ["auto", "H200", "A100-80G", "RTX-PRO-6000"])
def test_all_five_baselines_may_be_named_if_there_may_be_a_gpu(arch, write):
    path = write("gpu.yaml", f"evaluator: {{arch: {arch}, baselines: [{', '.join(BASELINES)}]}}")
    assert load_config(path).evaluator.baselines == list(BASELINES)


def test_the_baselines_that_are_refused_on_a_cpu_are_those_that_the_evaluator_lacks_there():
    assert set(ONLY_ON_GPUS) == set(BASELINES) - set(existing_baselines("cpu"))
    assert set(BASELINES) == set(existing_baselines("H200"))


def test_a_stall_is_longer_than_every_call_that_is_allowed(write):
    path = write("empty.yaml", "")
    assert error_of(path, "stall_minutes=30") == (
        "override stall_minutes=30: stall_minutes must be 0 (never) or at least 31, since rollout.start_timeout lets a "
        "run be without a move for so long, got 30"
    )
    assert load_config(path, ["stall_minutes=31"]).stall_minutes == 31
    assert error_of(path, "learner.timeout=3600").startswith("override learner.timeout=3600: stall_minutes must be 0 ")
    assert load_config(path, ["learner.timeout=3600", "stall_minutes=0"]).stall_minutes == 0
    assert "evaluator.timeout lets" in error_of(path, "evaluator.timeout=5000")
    slow = "evaluator.limits.build_seconds=500"
    assert "evaluator.limits.build_seconds lets" in error_of(path, slow)
    assert load_config(path, [slow, "evaluator.timeout=600"]).stall_minutes == 60
    teachers = ["sft.teachers=[https://x/v1]", "sft.teacher_model=m", "sft.endpoint.patience=3500"]
    assert "sft.endpoint.patience lets a run be" in error_of(path, *teachers)
    assert load_config(path, [*teachers, "schedule.phases=[contrastive_rl]"]).stall_minutes == 60


def test_a_missing_file_a_folder_and_an_unreadable_file_are_one_line(write, tmp_path):
    write("folder/x.yaml", "")
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00")
    assert error_of("nowhere").startswith("nowhere: no such config; give a YAML file")
    assert error_of("folder") == "folder: a config must be a YAML file, got a folder"
    assert error_of("bytes.yaml").startswith("bytes.yaml: cannot be read as UTF-8 text")


def test_every_number_at_its_bound_is_accepted_and_beyond_it_refused(write):
    path, tried = write("empty.yaml", ""), 0
    for key, _, item in leaves(RunConfig(name="x")):
        for bound, beyond in [("low", -1), ("high", 1)]:
            limit = item.metadata.get(bound)
            if limit is not None:
                tried += 1
                assert key in error_of(path, f"{key}={limit + beyond}")
    assert tried > 50
    assert load_config(path, ["rollout.gpu_memory_utilization=0.99"]).rollout.gpu_memory_utilization == 0.99


def test_changed_keys_are_named_and_those_that_may_change_are_known(write):
    old = load_config(write("a.yaml", "name: a"))
    new = load_config("a.yaml", ["contrastive_rl.steps=7", "tracking.uri=http://x", "learner.zero_stage=2", "seed=1"])
    assert changed_keys(old, old) == []
    assert changed_keys(old, new) == ["seed", "contrastive_rl.steps", "learner.zero_stage", "tracking.uri"]
    assert [key for key in changed_keys(old, new) if not may_change(key)] == ["seed", "learner.zero_stage"]


def test_every_changeable_key_exists():
    several, teachers = EvaluationConfig(archs={"ARCH": ArchConfig()}), SftConfig(endpoints={"NAME": TeacherConfig()})
    keys = {key for key, _, _ in leaves(RunConfig(name="x", evaluation=several, sft=teachers))}
    known = {key[: end.start()] for key in keys for end in re.finditer(r"\.|$", key)}
    assert set(CHANGEABLE) <= known


def test_configs_import_neither_torch_nor_ray():
    code = "import sys, configs.load; sys.exit(any(name in sys.modules for name in ('torch', 'ray', 'transformers')))"
    assert subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, timeout=60, check=False).returncode == 0

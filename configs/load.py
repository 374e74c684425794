"""Loads a run's configuration from a YAML file, the file that it extends, and `key=value` overrides, and checks it.

Any fault raises a `ConfigError` of one line. Imports neither torch nor ray, and writes nothing.
"""

from __future__ import annotations

import copy
import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from configs.checks import leaves, listed, violations
from configs.retired import Loss, remedies, translate
from configs.schema import RunConfig

PACKAGE = Path(__file__).resolve().parent

CHANGEABLE: Mapping[str, str] = {
    "root": "the run directory may have been moved",
    "checkpoint_every": "when state is saved, not its content",
    "keep_last": "only how many old checkpoints are kept",
    "keep_best": "only how many old checkpoints are kept",
    "drain_seconds": "when the process ends",
    "stall_minutes": "patience only",
    "schedule.cycles": "more cycles extend the run",
    "sft.epochs": "more epochs extend the phase",
    "sft.endpoint.concurrency": "speed only",
    "sft.endpoint.requests_per_minute": "speed only",
    "sft.endpoints.NAME.url": "where the model answers, not which one does",
    "sft.endpoints.NAME.key": "who pays",
    "sft.endpoints.NAME.asking": "patience, speed and prices only; the metrics have the number of lost answers",
    "sft.endpoint.timeout": "patience only",
    "sft.endpoint.patience": "patience only",
    "sft.endpoint.share": "which lessons may be missing; the metrics have the number of lost answers",
    "sft.endpoint.input_price": "what is reported",
    "sft.endpoint.output_price": "what is reported",
    "sft.kernels_first": "which programs are proposed first; the lessons say which they are",
    "sft.collect_minutes": "how many lessons there are; the metrics have their number",
    "sft.min_entropy": "when the phase ends; the metrics of each epoch have its entropy",
    "sft.entropy_samples": "how precisely a metric is measured",
    "self_supervised.max_rounds": "more rounds extend the phase",
    "contrastive_rl.steps": "more steps extend the phase",
    "contrastive_rl.minutes": "more minutes extend the phase",
    "self_supervised.samples": "the next round draws more or fewer samples",
    "sft.learning_rate": "later steps use it; the metrics of each step have its rate",
    "self_supervised.learning_rate": "later steps use it; the metrics of each step have its rate",
    "contrastive_rl.learning_rate": "later steps use it; the metrics of each step have its rate",
    "vanilla.rounds": "more rounds extend the phase",
    "evolve.rounds": "more rounds extend the phase",
    "evolve.budget": "a larger budget extends the phase",
    "rollout.endpoint.url": "where the model answers, not which one does",
    "rollout.endpoint.asking": "patience and prices only",
    "assessment": "later assessments are measured differently, and say so",
    "rollout.engines": "where responses are generated, not their content",
    "rollout.engines_per_gpu": "where responses are generated, not their content",
    "rollout.max_concurrent": "speed only",
    "rollout.kv_cache_gib": "speed only",
    "rollout.gpu_memory_utilization": "speed only",
    "rollout.tensor_parallel": "speed only",
    "rollout.cpu_cores": "speed only",
    "rollout.compile": "speed only",
    "learner.lora.sync": "how weights travel, not their values",
    "rollout.weight_transport": "how weights travel, not their values",
    "rollout.sync_bucket_mib": "memory only",
    "rollout.sleep": "memory only",
    "evaluator.require_containment": "where programs may run, not their verdicts",
    "placement": "where roles run, not their work",
    "guard.checker": "who is asked about doubted programs",
    "guard.checker_model": "who is asked about doubted programs",
    "guard.checker_timeout": "patience only",
    "rollout.start_timeout": "patience only",
    "rollout.timeout": "patience only",
    "learner.micro_batch_tokens": "how a batch is cut for memory, not its gradient",
    "learner.ranks": "how a batch is divided, not its gradient",
    "learner.sequence_parallel": "how a batch is divided, not its gradient",
    "learner.min_ranks": "how a batch is divided, not its gradient",
    "learner.place_timeout": "patience only",
    "learner.start_timeout": "patience only",
    "learner.gradient_checkpointing": "memory only",
    "learner.compile": "speed only",
    "learner.attention": "how a batch is laid out, not its gradient",
    "learner.max_skipped_steps": "patience only",
    "learner.threads": "speed only",
    "learner.timeout": "patience only",
    "evaluator.workers": "speed only",
    "evaluator.builders": "speed only",
    "evaluation.archs.ARCH.workers": "speed only",
    "evaluation.archs.ARCH.builders": "speed only",
    "evaluation.archs.ARCH.idle_minutes": "when evaluators run",
    "evaluator.timeout": "when a program goes to another process, not its verdict",
    "evaluator.build_cache_gib": "what is kept, not its content",
    "evaluator.cpu_look": "where a failure is found, not its outcome; the verdict says where",
    "evaluator.cpu_look_values": "where a wrong output is found, not its outcome; the verdict says where",
    "evaluator.store": "baselines and artifacts are named by their inputs",
    "evaluator.verdicts_of": "verdicts that are taken over say so",
    "storage": "how long is waited, not for what",
    "tracking": "where the run is shown, not its work",
    "logging": "what is logged, not the run's work",
    "ray": "where the run runs",
    "cluster": "where the run runs",
}
"""Keys or sections that may differ when a run is resumed, and why its results stay comparable or show the change."""


class ConfigError(Exception):
    """The configuration cannot be used. The message is one line that names file, key, value and remedy."""


@dataclass(frozen=True)
class _Layer:
    """One source of settings, which are not checked yet. `origin` names it in errors."""

    origin: str
    settings: DictConfig


def load_config(path: str | Path, overrides: Sequence[str] = ()) -> RunConfig:
    """The checked configuration of `path`, changed by `key=value` overrides. Raises ConfigError.

    `path` is a YAML file, or the name of one of this package (`local`, `h200`). A file may extend another by
    `base: other.yaml`, relative to itself. `name` defaults to the stem of the file.
    """
    file, origin = _find(path)
    layers = [*_file_layers(file, origin, ()), *(_override_layer(text) for text in overrides)]
    return _merge(layers, origin, default_name=file.stem)


@dataclass(frozen=True)
class StoredConfig:
    """The configuration of an existing run in today's keys. `losses`: its settings that this version does not have."""

    config: RunConfig
    losses: tuple[Loss, ...]


def parse_config(text: str, origin: str, overrides: Sequence[str] = ()) -> StoredConfig:
    """The checked configuration of a run's `config.yaml`, which an earlier version may have written, changed by
    `key=value` overrides.

    `origin` names it in errors. Raises ConfigError.
    """
    settings: Any = OmegaConf.to_container(_parse(text, origin))
    losses = translate(settings)
    layers = [_Layer(origin, OmegaConf.create(settings)), *(_override_layer(text) for text in overrides)]
    config = _merge(layers, origin, default_name="")
    return StoredConfig(config, tuple(losses))


def dump_config(config: RunConfig) -> str:
    """The whole configuration as YAML. `load_config` and `parse_config` read it back as the same configuration."""
    return OmegaConf.to_yaml(OmegaConf.structured(config))


def changed_keys(old: RunConfig, new: RunConfig) -> list[str]:
    """The dotted names of the keys that differ, in the schema's order."""
    before, after = ({key: value for key, value, _ in leaves(config)} for config in (old, new))
    absent = object()
    return [key for key in before | after if before.get(key, absent) != after.get(key, absent)]


def may_change(key: str) -> bool:
    """Whether a run may be resumed with another value of `key` (see `CHANGEABLE`)."""
    parts = key.split(".")
    for section, any_name in (("evaluation.archs", "ARCH"), ("sft.endpoints", "NAME")):
        if key.startswith(f"{section}."):
            parts[2] = any_name
    sections = (".".join(parts[: count + 1]) for count in range(len(parts)))
    return any(section in CHANGEABLE for section in sections)


def _find(path: str | Path) -> tuple[Path, str]:
    """The file that `path` means, and its name in errors."""
    file = Path(path)
    if file.is_file():
        return file, str(path)
    bundled = PACKAGE / file.with_name(f"{file.name}.yaml") if file.name and not file.suffix else None
    if bundled is not None and not file.is_absolute() and bundled.is_file():
        return bundled, f"configs/{file}.yaml"
    if file.is_dir():
        raise ConfigError(f"{path}: a config must be a YAML file, got a folder")
    known = sorted(str(found.relative_to(PACKAGE).with_suffix("")) for found in PACKAGE.rglob("*.yaml"))
    remedy = f"give a YAML file, or one of {listed(known)}" if known else "give a YAML file"
    raise ConfigError(f"{path}: no such config; {remedy}")


def _parse(text: str, origin: str) -> DictConfig:
    try:
        settings = OmegaConf.create(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"{origin}, line {mark.line + 1}" if mark else origin
        raise ConfigError(f"{where}: not valid YAML: {_one_line(error.problem or error)}; correct the line") from error
    except (yaml.YAMLError, OmegaConfBaseException, OSError) as error:
        raise ConfigError(f"{origin}: not valid YAML: {_first_line(error)}; correct the file") from error
    # OmegaConf reads a single word as a key without a value.
    if not isinstance(settings, DictConfig) or (len(settings) == 1 and ":" not in text and "{" not in text):
        raise ConfigError(f"{origin}: a config must be a mapping of keys to values, got {_shown(text.strip())}")
    return settings


def _file_layers(file: Path, origin: str, seen: tuple[Path, ...]) -> list[_Layer]:
    """The settings of the file that `file` extends, then its own."""
    if file.resolve() in seen:
        raise ConfigError(f"{origin}: base must not lead back to a file that extends this one; remove one `base:`")
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{origin}: cannot be read as UTF-8 text: {_one_line(error)}") from error
    settings = _parse(text, origin) if text.strip() else OmegaConf.create({})
    if "base" not in settings:
        return [_Layer(origin, settings)]
    base = settings.pop("base")
    if not isinstance(base, str) or not base:
        raise ConfigError(f"{origin}: base must be a path relative to this file, got {_shown(base)}")
    below = file.parent / base
    if not below.is_file():
        raise ConfigError(f"{origin}: base must name a file relative to this one, got {base}: no such file")
    folder = Path(origin).parent
    return [*_file_layers(below, str(folder / base), (*seen, file.resolve())), _Layer(origin, settings)]


def _override_layer(text: str) -> _Layer:
    origin = f"override {_shown(text)}"
    key, equals, _ = text.partition("=")
    if not equals or not all(part.replace("-", "_").isidentifier() for part in key.strip().split(".")):
        raise ConfigError(f"{origin}: an override must read key=value, such as learner.zero_stage=2")
    try:
        return _Layer(origin, OmegaConf.from_dotlist([text.strip()]))
    except (yaml.YAMLError, OmegaConfBaseException) as error:
        raise ConfigError(f"{origin}: the value of {key} is not valid YAML; quote it: {key}='...'") from error


@cache
def _defaults() -> DictConfig:
    """The schema's defaults, which take OmegaConf several times as long to make as to copy."""
    return OmegaConf.structured(RunConfig)


def _merge(layers: Sequence[_Layer], file_origin: str, default_name: str) -> RunConfig:
    """Applies the settings to the schema's defaults, key by key, so that an error can name the source of the key."""
    merged, origins = copy.deepcopy(_defaults()), dict[str, str]()
    for layer in layers:
        settings: Any = OmegaConf.to_container(layer.settings)
        if retired := remedies(settings):
            raise ConfigError(f"{layer.origin}: {'; '.join(retired)}")
        for key, value, expected in _checked_leaves(settings, RunConfig, layer.origin):
            try:
                if not is_dataclass(expected):
                    OmegaConf.update(merged, key, value, merge=False)
                elif OmegaConf.select(merged, key) is None:  # a section of a name that is the user's own
                    OmegaConf.update(merged, key, expected, merge=False)
            except OmegaConfBaseException as error:
                raise _wrong_type(layer.origin, key, value, expected) from error
            origins[key] = layer.origin
    if OmegaConf.is_missing(merged, "name") and default_name:
        merged.name = default_name
    try:
        config = OmegaConf.to_object(merged)
    except OmegaConfBaseException as error:
        key = getattr(error, "full_key", None) or "a key"
        where = origins.get(str(key), file_origin)
        raise ConfigError(f"{where}: {key} has no usable value: {_first_line(error)}; set it") from error
    assert isinstance(config, RunConfig)
    for keys, sentence in violations(config):
        where = next((origins[key] for key in keys if key in origins), file_origin)
        raise ConfigError(f"{where}: {_one_line(sentence)}")
    return config


def _checked_leaves(settings: Any, section: type, origin: str, prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    """The settings that are not sections: dotted key, value, expected type. Raises ConfigError for an unknown key."""
    hints = get_type_hints(section)
    for name, value in settings.items():
        key = f"{prefix}{name}"
        if name not in hints:
            raise _unknown_key(origin, key, str(name), list(hints), prefix)
        expected = hints[name]
        if get_origin(expected) is dict:
            _require_section(origin, key, value, "a name of yours each")
            section_type = get_args(expected)[1]
            for own, inner in value.items():
                yield f"{key}.{own}", inner, section_type
                yield from _section_leaves(inner, section_type, origin, f"{key}.{own}")
        elif is_dataclass(expected):
            yield from _section_leaves(value, expected, origin, key)  # type: ignore[arg-type]
        else:
            yield key, value, expected


def _section_leaves(settings: Any, section: type, origin: str, key: str) -> Iterator[tuple[str, Any, Any]]:
    _require_section(origin, key, settings, f"keys such as {', '.join(list(get_type_hints(section))[:3])}")
    yield from _checked_leaves(settings, section, origin, f"{key}.")


def _require_section(origin: str, key: str, value: Any, content: str) -> None:
    if not isinstance(value, dict):
        raise ConfigError(f"{origin}: {key} must be a section with {content}, got {_shown(value)}")


def _unknown_key(origin: str, key: str, name: str, siblings: list[str], prefix: str) -> ConfigError:
    """Suggests a similar key of the same section, else of another section, else lists the section's keys."""
    elsewhere = {dotted.rsplit(".", 1)[-1]: dotted for dotted, _, _ in leaves(RunConfig(name=""))}
    close = [f"{prefix}{sibling}" for sibling in difflib.get_close_matches(name, siblings, n=1, cutoff=0.6)]
    close += [elsewhere[match] for match in difflib.get_close_matches(name, list(elsewhere), n=1, cutoff=0.75)]
    if close:
        return ConfigError(f"{origin}: unknown key {key}; did you mean {close[0]}?")
    return ConfigError(f"{origin}: unknown key {key}; {prefix.rstrip('.') or 'a config'} has {', '.join(siblings)}")


_TYPE_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
_LIST_WORDS = {int: "a list of whole numbers", str: "a list of words"}


def _wrong_type(origin: str, key: str, value: Any, expected: Any) -> ConfigError:
    words = _LIST_WORDS[get_args(expected)[0]] if get_origin(expected) is list else _TYPE_WORDS[expected]
    return ConfigError(f"{origin}: {key} must be {words}, got {_shown(value)}")


def _one_line(thing: object, limit: int = 300) -> str:
    text = " ".join(str(thing).split())
    return text if len(text) <= limit else f"{text[:limit]}..."


def _first_line(error: Exception) -> str:
    return _one_line(str(error).splitlines()[0] if str(error) else type(error).__name__)


def _shown(value: object) -> str:
    return "null" if value is None else "true" if value is True else "false" if value is False else _one_line(value, 80)

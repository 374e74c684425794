"""What transformers forces us to do, and what we rely on in it (docs/upgrading.md)."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AttentionInterface, AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast, Qwen2Config
from transformers.modeling_layers import GradientCheckpointingLayer

from configs.schema import ScratchConfig
from learners.policy import make_policy

Still = Callable[[object], None]
TEXT = "def forward(self, x):\n    return torch.relu(x) * 123\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Qwen2 with a tokenizer that splits text at line ends alone."""
    place = tmp_path_factory.mktemp("policy")
    scratch = ScratchConfig(vocab_size=320, hidden_size=32, intermediate_size=64, layers=1, heads=4, kv_heads=2)
    make_policy(place, [TEXT * 20], scratch, max_length=64, seed=0)
    return place


def test_plain_tokenizers(folder: Path, still: Still) -> None:
    as_saved, by_model = PreTrainedTokenizerFast.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    still(as_saved(TEXT)["input_ids"] != by_model(TEXT)["input_ids"])


def test_evaluation_mode(still: Still) -> None:
    class Layer(GradientCheckpointingLayer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x

    calls = list[bool]()

    def checkpoint(function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        calls.append(layer.training)
        return function(*arguments, **keywords)

    layer = Layer()
    layer.gradient_checkpointing, layer._gradient_checkpointing_func = True, checkpoint
    for is_training in (True, False):
        layer.train(is_training)(torch.zeros(1))
    assert True in calls
    still(False not in calls)


def test_random_weights(folder: Path, tmp_path: Path, still: Still) -> None:
    weights = load_file(folder / "model.safetensors")
    del weights["model.norm.weight"]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    try:
        model, report = AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    except (OSError, RuntimeError, ValueError):
        still(False)
    still(set(report["missing_keys"]) == {"model.norm.weight"} and model.model.norm.weight.numel())


def test_whole_weights_on_every_rank(folder: Path, monkeypatch: pytest.MonkeyPatch, still: Still) -> None:
    class Reached(Exception):
        pass

    held: dict[str, Any] = {}

    def load(_model: Any, state: dict[str, Any], *_others: Any) -> None:
        held.update(state)
        raise Reached

    place = transformers.modeling_utils
    config = Qwen2Config.from_pretrained(folder)
    model = transformers.Qwen2ForCausalLM(config)
    monkeypatch.setattr(place, "is_deepspeed_zero3_enabled", lambda: True)
    monkeypatch.setattr(place, "_load_state_dict_into_zero3_model", load)
    settings = place.LoadStateDictConfig(pretrained_model_name_or_path=str(folder))
    with pytest.raises(Reached):
        model._load_pretrained_model(model, None, [str(folder / "model.safetensors")], settings)
    whole = load_file(folder / "model.safetensors")
    still(held.keys() == whole.keys() and all(isinstance(value, torch.Tensor) for value in held.values()))


@pytest.mark.slow
def test_saving_imports_deepspeed(folder: Path, tmp_path: Path, still: Still) -> None:
    words = (
        "import sys; from transformers import AutoModelForCausalLM\n"
        f"AutoModelForCausalLM.from_pretrained({str(folder)!r}).save_pretrained({str(tmp_path)!r})\n"
        "print('deepspeed' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True, timeout=120)
    still(done.stdout.splitlines()[-1] == "True")


def test_empty_models(still: Still) -> None:
    from transformers.initialization import no_init_weights

    still(callable(no_init_weights) and not hasattr(transformers, "no_init_weights"))


def test_absent_files(tmp_path: Path, still: Still) -> None:
    from transformers.utils.hub import cached_file, cached_files

    asked = [*inspect.signature(cached_file).parameters, *inspect.signature(cached_files).parameters]
    still(not any("missing" in name or "raise" in name for name in asked if not name.startswith("_")))
    with pytest.raises(OSError, match="absent"):
        cached_file(str(tmp_path), "absent.json")
    still(cached_file(str(tmp_path), "absent.json", _raise_exceptions_for_missing_entries=False) is None)


def test_attention_arguments(folder: Path, still: Still) -> None:
    seen = list[Any]()

    def attend(_module: Any, query: torch.Tensor, _key: Any, _value: Any, _mask: Any, **others: Any) -> Any:
        seen.append(others.get("layout"))
        return query.transpose(1, 2), None

    AttentionInterface.register("upgrading_test", attend)
    model = AutoModelForCausalLM.from_pretrained(folder)
    model.set_attn_implementation("upgrading_test")
    ids, mask = torch.tensor([[1, 2, 3]]), torch.zeros(1, 1, 1, 1)
    model.base_model(input_ids=ids, attention_mask=mask, layout="a layout", use_cache=False)
    still(seen == ["a layout"])


def test_module_names(still: Still) -> None:
    from transformers.models.auto.tokenization_auto import get_tokenizer_config
    from transformers.utils import GENERATION_CONFIG_NAME, SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME
    from transformers.utils.hub import get_checkpoint_shard_files

    still(callable(get_tokenizer_config) and callable(get_checkpoint_shard_files))
    names = (GENERATION_CONFIG_NAME, SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME)
    still(names == ("generation_config.json", "model.safetensors.index.json", "model.safetensors"))

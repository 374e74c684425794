"""How long a GRPO step takes with TRL's `GRPOTrainer` and colocated vLLM on one GPU: TRL's side of
`benchmarks.learner step`.

    python -m benchmarks.learner_trl --model FOLDER [--steps 12] [--warm-up 2] [--micro-batch 16] [--output FILE.json]
                                     [option=value ...]

Prints the medians of the stages. Prompts are random words of exactly `--prompt-tokens` tokens, responses have exactly
`--response-tokens`, and a reward takes no time. Options are fields of `GRPOConfig`, such as `bf16=false`, and override
those set here. Needs a GPU, and TRL 1.16 with its `datasets`, on which Warpsmith does not depend. `--model tiny
--no-vllm` tries the script itself with a small random model, on any machine; its figures mean nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

WORDS = (
    "time year people way day man thing woman life child world school state family student group country problem hand "
    "part place case week company system program question work government number night point home water room mother "
    "area money story fact month lot right study book eye job word business issue side kind head house service friend"
)
STAGES = ("generate", "logprob", "train", "sync", "other")
PACKAGES = ("trl", "vllm", "torch", "transformers", "accelerate")


@dataclass(frozen=True)
class Settings:
    """The sizes of a step: `prompts` x `responses` sequences, of which `micro_batch` are trained on at a time."""

    model: str
    prompts: int = 16
    responses: int = 16
    prompt_tokens: int = 512
    response_tokens: int = 512
    micro_batch: int = 16
    vllm: bool = True
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def sequences(self) -> int:
        """Sequences of one step."""
        return self.prompts * self.responses


class Stages:
    """Measures how the time of a step is spent. Each moment belongs to the innermost open stage, or to `train` if none
    is open. So the stages of a step add up to its time.
    """

    def __init__(self) -> None:
        self._open = ["train"]
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._since = time.perf_counter()

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Counts the time within the block for `name`. Earlier work of the GPU counts for the stage before."""
        self._charge()
        self._open.append(name)
        try:
            yield
        finally:
            self._charge()
            self._open.pop()

    def take(self) -> dict[str, float]:
        """Seconds of each stage and of the step since the last call of this method."""
        self._charge()
        seconds = {f"{name}_seconds": self._seconds[name] for name in STAGES}
        seconds["step_seconds"] = sum(self._seconds.values())
        self._seconds.clear()
        return seconds

    def _charge(self) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        now = time.perf_counter()
        self._seconds[self._open[-1]] += now - self._since
        self._since = now


def prompt_text(tokenizer: Any, tokens: int, generator: random.Random) -> str:
    """Random words that the tokenizer turns into exactly `tokens` tokens. Raises ValueError if it finds none."""
    words = generator.choices(WORDS.split(), k=tokens)
    for _ in range(10 * tokens):
        text = " ".join(words)
        excess = len(tokenizer(text=[text])["input_ids"][0]) - tokens
        if not excess:
            return text
        if excess > 0:
            del words[-((excess + 1) // 2) :]
        else:
            words += generator.choices(WORDS.split(), k=(1 - excess) // 2)
    raise ValueError(f"the tokenizer makes {tokens} tokens of no text that was tried: give another --prompt-tokens")


def reward(completion_ids: list[list[int]], **_: Any) -> list[float]:
    """A number for each response, in no time. It differs within a group, so that the loss has a gradient."""
    return [sum(ids[:8]) % 16 / 16 for ids in completion_ids]


def trainer_options(settings: Settings, steps: int, folder: Path) -> dict[str, Any]:
    """The fields of `GRPOConfig`; all others have TRL's defaults."""
    on_gpu = torch.cuda.is_available()
    # The trainer decodes the token ids itself, so vLLM does not have to. Without vLLM the end of text cannot be
    # ignored, but it can be forbidden.
    exact = {"ignore_eos": True, "detokenize": False} if settings.vllm else {"min_new_tokens": settings.response_tokens}
    return {
        "output_dir": str(folder),
        "max_steps": steps,
        "per_device_train_batch_size": settings.micro_batch,
        "gradient_accumulation_steps": settings.sequences // settings.micro_batch,
        "num_generations": settings.responses,
        "num_iterations": 1,
        "max_completion_length": settings.response_tokens,
        "temperature": 1.0,
        "beta": 0.005,
        "learning_rate": 1e-6,
        "lr_scheduler_type": "constant",
        "disable_dropout": True,
        "gradient_checkpointing": False,
        # By default TRL keeps the weights in float32.
        "model_init_kwargs": {"dtype": "bfloat16" if on_gpu else "float32", "attn_implementation": "sdpa"},
        "bf16": on_gpu,
        "use_cpu": not on_gpu,
        "use_vllm": settings.vllm,
        "vllm_mode": "colocate",
        "vllm_enable_sleep_mode": False,
        "vllm_gpu_memory_utilization": 0.3,
        "vllm_max_model_length": settings.prompt_tokens + settings.response_tokens,
        "generation_kwargs": exact,
        "report_to": "none",
        "logging_strategy": "no",
        "save_strategy": "no",
        "eval_strategy": "no",
        "disable_tqdm": True,
        "seed": 0,
        **settings.options,
    }


def trainer_class(settings: Settings, stages: Stages) -> Any:
    """`GRPOTrainer`, unchanged except that its stages are timed and its lengths are checked."""
    from trl import GRPOTrainer

    class TimedTrainer(GRPOTrainer):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            if settings.vllm:
                self._push, self.vllm_generation.sync_weights = self.vllm_generation.sync_weights, self._timed_push

        def _timed_push(self) -> None:
            with stages.stage("sync"):
                self._push()

        def _generate_and_score_completions(self, inputs: Any) -> Any:
            with stages.stage("other"):
                return super()._generate_and_score_completions(inputs)

        def _generate_single_turn(self, prompt_ids: Any, *arguments: Any, **options: Any) -> Any:
            with stages.stage("generate"):
                outputs = super()._generate_single_turn(prompt_ids, *arguments, **options)
            check_lengths(settings, prompt_ids, outputs[0])
            return outputs

        def _get_per_token_logps_and_entropies(self, *arguments: Any, **options: Any) -> Any:
            if torch.is_grad_enabled():  # called by the loss
                return super()._get_per_token_logps_and_entropies(*arguments, **options)
            with stages.stage("logprob"):
                return super()._get_per_token_logps_and_entropies(*arguments, **options)

    return TimedTrainer


def check_lengths(settings: Settings, prompts: Sequence[Sequence[int]], responses: Sequence[Sequence[int]]) -> None:
    """Raises ValueError if a step has other numbers of sequences or tokens than the settings say."""
    for name, rows, tokens in (
        ("prompts", prompts, settings.prompt_tokens),
        ("responses", responses, settings.response_tokens),
    ):
        lengths = Counter(len(row) for row in rows)
        if lengths != {tokens: settings.sequences}:
            raise ValueError(f"{name}: {settings.sequences} of {tokens} tokens were asked for, got {dict(lengths)}")


def measure(settings: Settings, steps: int, warm_up: int) -> dict[str, Any]:
    """Trains; returns the seconds of each stage for every step after the warm-up, and the peak memory of these steps.

    `metrics` are the trainer's own, means over all steps: they show whether vLLM and the trainer agree on the policy.
    `peak_bytes` is the memory in use on the GPU, vLLM's and torch's caches included; `peak_allocated_bytes` is the
    memory of tensors alone.
    """
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig

    from learners.tokenizing import load_tokenizer

    on_gpu, stages, peaks = torch.cuda.is_available(), Stages(), [0]
    measured: list[dict[str, float]] = []

    class Watch(TrainerCallback):
        def on_train_begin(self, *_: Any, **__: Any) -> None:
            stages.take()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            measured.append(stages.take())
            if on_gpu and len(measured) == warm_up:
                torch.cuda.reset_peak_memory_stats()
            elif on_gpu and len(measured) > warm_up:
                free, total = torch.cuda.mem_get_info()  # torch frees nothing between steps
                peaks.append(total - free)

    tokenizer, generator = load_tokenizer(settings.model), random.Random(0)
    texts = [
        prompt_text(tokenizer, settings.prompt_tokens, generator) for _ in range((warm_up + steps) * settings.prompts)
    ]
    with tempfile.TemporaryDirectory(prefix="warpsmith-trl-") as folder:
        options = trainer_options(settings, warm_up + steps, Path(folder))
        trainer = trainer_class(settings, stages)(
            model=settings.model,
            reward_funcs=reward,
            args=GRPOConfig(**options),
            train_dataset=Dataset.from_dict({"prompt": texts}),
            processing_class=tokenizer,
            callbacks=[Watch()],
        )
        trainer.train()
        metrics = trainer.state.log_history[-1]
    about = asdict(settings) | {"model": Path(settings.model).name, "device": device_name(), "versions": versions()}
    del options["output_dir"], about["options"]
    return {
        "settings": {**about, "trainer": options},
        "metrics": metrics,
        "steps": measured[warm_up:],
        "peak_bytes": max(peaks),
        "peak_allocated_bytes": torch.cuda.max_memory_allocated() if on_gpu else 0,
    }


def device_name() -> str:
    """The GPU's name, or `cpu`."""
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"


def versions() -> dict[str, str]:
    """Versions of the packages that make a step, if they are installed."""
    installed = {}
    for name in PACKAGES:
        try:
            installed[name] = version(name)
        except PackageNotFoundError:
            continue
    return installed


def listed_versions(figures: dict[str, Any]) -> str:
    """The versions with which figures were measured: `trl 1.16.0, torch 2.13.0`."""
    return ", ".join(f"{name} {number}" for name, number in figures["settings"]["versions"].items())


def summarise(figures: dict[str, Any]) -> dict[str, float]:
    """Medians over the steps, in seconds; `peak_bytes`; tokens a second by the median step.

    figures: `settings` with prompts, responses, prompt_tokens and response_tokens, `steps`, `peak_bytes`.
    `tokens_per_second` counts prompt and response of every sequence, `response_tokens_per_second` the generated tokens.
    """
    settings, steps = figures["settings"], figures["steps"]
    medians = {name: median(step[name] for step in steps) for name in steps[0]}
    rate = settings["prompts"] * settings["responses"] / medians["step_seconds"]
    return {
        **medians,
        "tokens_per_second": rate * (settings["prompt_tokens"] + settings["response_tokens"]),
        "response_tokens_per_second": rate * settings["response_tokens"],
        "peak_bytes": figures["peak_bytes"],
    }


def print_summary(figures: dict[str, Any], console: Console) -> None:
    """Prints a line with medians over the steps."""
    medians = summarise(figures)
    table = Table(
        "step, s", *(f"{stage}, s" for stage in STAGES), "tokens/s", "response tokens/s", "peak, GB", box=None
    )
    table.add_row(
        f"{medians['step_seconds']:.2f}",
        *(f"{medians[f'{stage}_seconds']:.2f}" for stage in STAGES),
        f"{medians['tokens_per_second']:,.0f}",
        f"{medians['response_tokens_per_second']:,.0f}",
        f"{medians['peak_bytes'] / 1e9:.1f}",
    )
    console.print(table)
    settings = figures["settings"]
    console.print(
        f"medians of {len(figures['steps'])} steps of {settings['prompts']} x {settings['responses']} responses, "
        f"{settings['prompt_tokens']} and {settings['response_tokens']} tokens, micro-batch {settings['micro_batch']}; "
        f"{settings['device']}; {listed_versions(figures)}",
        highlight=False,
    )


def make_tiny(folder: Path, tokens: int) -> str:
    """Writes a small random model for sequences of up to `tokens` tokens; returns its folder."""
    from configs.schema import ScratchConfig
    from learners.policy import make_policy

    sizes = ScratchConfig(hidden_size=64, heads=2, kv_heads=1, intermediate_size=128, layers=2)
    make_policy(folder, [WORDS], sizes, tokens, seed=0)
    return str(folder)


def option(text: str) -> tuple[str, Any]:
    """A field of `GRPOConfig` and its value, which is JSON or a plain string."""
    name, separator, value = text.partition("=")
    if not separator:
        raise argparse.ArgumentTypeError(f"{text}: give option=value")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("options", nargs="*", type=option, metavar="option=value", help="a field of GRPOConfig")
    parser.add_argument("--model", required=True, help="a folder, or `tiny`")
    parser.add_argument("--steps", type=int, default=12, help="measured steps")
    parser.add_argument("--warm-up", type=int, default=2, help="steps before them")
    parser.add_argument("--prompts", type=int, default=16, help="a step")
    parser.add_argument("--responses", type=int, default=16, help="a prompt")
    parser.add_argument("--prompt-tokens", type=int, default=512)
    parser.add_argument("--response-tokens", type=int, default=512)
    parser.add_argument("--micro-batch", type=int, default=16, help="sequences a forward pass")
    parser.add_argument("--no-vllm", action="store_true", help="generate with transformers")
    parser.add_argument("--output", type=Path, help="a JSON file for all steps")
    arguments = parser.parse_args()
    if arguments.prompts * arguments.responses % arguments.micro_batch:
        parser.error(f"--micro-batch must divide {arguments.prompts * arguments.responses}, the sequences of a step")
    return arguments


def main() -> None:
    arguments = parse_arguments()
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0")  # TRL refuses a second GPU that no launcher assigns
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    with tempfile.TemporaryDirectory(prefix="warpsmith-trl-model-") as folder:
        model = arguments.model
        if model == "tiny":
            model = make_tiny(Path(folder), arguments.prompt_tokens + arguments.response_tokens)
        settings = Settings(
            model=model,
            prompts=arguments.prompts,
            responses=arguments.responses,
            prompt_tokens=arguments.prompt_tokens,
            response_tokens=arguments.response_tokens,
            micro_batch=arguments.micro_batch,
            vllm=not arguments.no_vllm,
            options=dict(arguments.options),
        )
        figures = measure(settings, arguments.steps, arguments.warm_up)
    if arguments.output:
        arguments.output.write_text(json.dumps(figures, indent=1))
    print_summary(figures, Console(width=120))


if __name__ == "__main__":
    main()

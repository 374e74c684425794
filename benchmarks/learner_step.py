"""How long a GRPO step takes with Warpsmith on one GPU: generation, log-probabilities, update and weight sync.

    python -m benchmarks.learner_step --model FOLDER [--steps 12] [--warm-up 2] [--output FILE.json] [key=value ...]

Prints the medians of the stages. Prompts have exactly `--prompt-tokens` random ids, responses have exactly
`--response-tokens`, and a verdict takes no time and rewards every response by its digest. Everything else is as in a
run: Ray, vLLM, the pipeline, DeepSpeed, the weight push. Overrides are of `configs/local.yaml` and come last. Needs a
GPU; `--model scratch` tries the script itself on a CPU.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import ray
import torch
from rich.console import Console

import orchestration.step.gathering
from actors.evaluation import EvaluationRequest
from actors.generation import GenerationRequest
from actors.managed import Managed
from actors.pool import ActorPool
from benchmarks.learner_trl import device_name, print_summary, versions
from configs.load import load_config
from configs.schema import RunConfig
from evaluators.records import Estimate, Outcome, Verdict
from orchestration.commands.machine import machine_arch
from orchestration.driver import take_steps
from orchestration.phases import ContrastiveRl, PhaseContext
from orchestration.report.progress import Progress
from orchestration.session import Session
from orchestration.step.gathering import Gathering
from orchestration.step.records import Prompt
from prompts.parse import ParsedResponse

SETTINGS = (
    "name=learner",
    "schedule.phases=[contrastive_rl]",
    "tracking.enabled=false",
    "tasks.held_out.share=0",
    "checkpoint_every=100000",
    "keep_last=0",
    "keep_best=0",
    "evaluator.baselines=[eager]",
)
"""Settings of every measurement of learning alone."""
ON_A_GPU = (
    "placement.share=training",
    "rollout.sleep=false",
    "placement.mps=true",
    "rollout.engines=2",
    "rollout.engines_per_gpu=2",
    "rollout.kv_cache_gib=6",
    "rollout.sync_bucket_mib=2048",  # all weights in one part
    "rollout.compile=false",
    "learner.zero_stage=1",
    "learner.micro_batch_tokens=34816",  # four prompts with their responses
    "ray.object_store_mib=4096",
    "policy.dtype=bfloat16",
)
EVALUATORS = 8
VOCABULARY = (1000, 100_000)  # prompts are drawn from these ids: words in every tokenizer of that size
SMALL = (300, 4000)  # likewise for the demo's tokenizer


@ray.remote(num_cpus=0)
class ConstantEvaluator(Managed):
    """Takes the same time for every program. The program's digest gives its speed-up, between 1 and 2."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def evaluate(self, request: EvaluationRequest) -> Verdict:
        """A verdict, after the constant time."""
        time.sleep(self._seconds)
        digest = request.candidate.digest
        value = 1 + int(digest[:4], 16) / 0xFFFF
        speedups = {"eager": Estimate(value, value, value, 1)}
        about = {"preset": request.preset}
        return Verdict(digest, request.task.id, "cpu", Outcome.OK, speedups=speedups, evaluator=about)


def session_without_evaluators(config: RunConfig) -> Session:
    """A session that is not open yet, and has no evaluators on its GPUs."""
    config.evaluator.workers = 0  # no configuration file may say that
    return Session(config, Progress(Console(stderr=True)))


def program_of(text: str, finish_reason: str) -> ParsedResponse:
    """Treats every response as a program, and every one as a different program."""
    return ParsedResponse(None, None, f"RESPONSE = {text!r}, {time.monotonic_ns()}", None)


def with_constant_verdicts(session: Session, seconds: float) -> ActorPool:
    """Replaces a session's evaluators by ones that take `seconds` for each response; returns these."""
    orchestration.step.gathering.parse_response = program_of
    session.roles.evaluators.stop()
    pool = ActorPool("constant", lambda _: ConstantEvaluator.remote(seconds), EVALUATORS)
    pool.wait_ready(120)
    session.pipeline.judging.evaluators = session.roles.evaluators = pool
    return pool


def with_whole_responses(session: Session) -> None:
    """Makes every response as long as it may be."""
    requests_for = session.pipeline._requests_for

    def whole(prompt: Prompt, gathering: Gathering) -> Iterator[GenerationRequest]:
        for request in requests_for(prompt, gathering):
            yield replace(request, ignore_eos=True, stop_after_code=False)

    session.pipeline._requests_for = whole  # type: ignore[method-assign]


class RandomPrompts(ContrastiveRl):
    """Contrastive RL on prompts of random tokens, which are different in every step."""

    def __init__(self, context: PhaseContext, cycle: int, tokens: int) -> None:
        super().__init__(context, cycle)
        self._tokens = tokens

    def prompts(self, step: int) -> list[Prompt]:
        """One prompt for each task of the step."""
        low, high = SMALL if self.context.config.policy.model == "scratch" else VOCABULARY
        ids = np.random.default_rng([step, self.cycle])
        tasks = self.context.tasks[: self.context.config.contrastive_rl.tasks_per_step]
        return [Prompt(task.id, task.id, "", tuple(ids.integers(low, high, self._tokens).tolist())) for task in tasks]


def used_bytes() -> int:
    """Bytes that all processes use on the GPU; 0 without one."""
    if not torch.cuda.is_available():
        return 0
    free, total = torch.cuda.mem_get_info()
    return total - free


def measure(arguments: argparse.Namespace, overrides: Sequence[str]) -> dict[str, Any]:
    """Takes the steps; returns the seconds of each stage, and the run's own metrics, for every measured step."""
    steps, warm_up, peak = arguments.steps, arguments.warm_up, 0
    with tempfile.TemporaryDirectory(prefix="warpsmith-learner-") as root:
        lengths = [
            f"policy.max_length={2 * (arguments.prompt_tokens + arguments.response_tokens)}",
            f"rollout.max_tokens={arguments.response_tokens}",
            f"contrastive_rl.tasks_per_step={arguments.prompts}",
            f"contrastive_rl.group_size={arguments.responses}",
            f"contrastive_rl.steps={steps + warm_up}",
            "contrastive_rl.learning_rate=1e-6",
        ]
        machine = (*ON_A_GPU, f"evaluator.arch={machine_arch()}") if torch.cuda.is_available() else ()
        model = [f"policy.model={arguments.model}", f"root={root}"]
        config = load_config("local", [*SETTINGS, *machine, *lengths, *model, *overrides])
        # All responses are generated at once.
        config.rollout.max_concurrent = -(-arguments.prompts * arguments.responses // config.rollout.engines)
        with session_without_evaluators(config) as session:
            pool = with_constant_verdicts(session, 0.0)
            with_whole_responses(session)
            phase = RandomPrompts(session.context(), 1, arguments.prompt_tokens)
            log_step = session.log_step

            def logged(*details: Any) -> None:
                nonlocal peak
                peak = max(peak, used_bytes())
                log_step(*details)

            session.log_step = logged  # type: ignore[method-assign]
            session.complete = lambda *_: None  # type: ignore[method-assign]  # it would write a checkpoint
            take_steps(session, phase)
            pool.stop()
            metrics: list[dict[str, float]] = [{} for _ in range(steps + warm_up)]
            for row in session.run.metrics.read(phase.key).to_pylist():
                metrics[row["step"]][row["name"]] = row["value"]
    expected = arguments.prompts * arguments.responses * arguments.response_tokens
    for row in metrics:
        if row["generated_tokens"] != expected:
            raise RuntimeError(f"a step generated {row['generated_tokens']:.0f} tokens instead of {expected}")
    names = ("prompts", "responses", "prompt_tokens", "response_tokens")
    return {
        "settings": {name: getattr(arguments, name) for name in names}
        | {"model": Path(arguments.model).name, "micro_batch": f"{config.learner.micro_batch_tokens} tokens"}
        | {"device": device_name(), "versions": versions(), "overrides": list(overrides)},
        "metrics": metrics[warm_up:],
        "steps": [stages_of(row) for row in metrics[warm_up:]],
        "peak_bytes": peak,
    }


def stages_of(metrics: dict[str, float]) -> dict[str, float]:
    """Seconds of a step by stage, which add up to the seconds of the step."""
    logprob = metrics["train/logprob_seconds"]
    stages = {
        "generate_seconds": metrics["generate_seconds"],
        "logprob_seconds": logprob,
        "train_seconds": metrics["train/seconds"] - logprob,
        "sync_seconds": metrics["sync_seconds"],
    }
    whole = metrics["step_seconds"]
    return {"step_seconds": whole, **stages, "other_seconds": whole - sum(stages.values())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="*", help="key=value")
    parser.add_argument("--model", required=True, help="a folder, or `scratch`")
    parser.add_argument("--steps", type=int, default=12, help="measured steps")
    parser.add_argument("--warm-up", type=int, default=2, help="steps before them")
    for name, default in (("prompts", 16), ("responses", 16), ("prompt-tokens", 512), ("response-tokens", 512)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--output", type=Path, help="a JSON file for all figures")
    arguments = parser.parse_args()
    figures = measure(arguments, arguments.overrides)
    if arguments.output:
        arguments.output.write_text(json.dumps(figures, indent=1))
    print_summary(figures, Console(width=120))


if __name__ == "__main__":
    main()

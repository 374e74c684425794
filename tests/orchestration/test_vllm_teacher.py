"""vLLM's own OpenAI-compatible server as a teacher, with a small model that has learnt one program by heart."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel

from configs.schema import EvaluatorConfig, RolloutConfig, RunConfig, ScratchConfig
from evaluators.tasks import find_task, program_source
from evaluators.tasks.loader import load_variants
from learners.policy import make_policy
from orchestration.run.directory import RunDirectory
from prompts.render import PromptRenderer
from tests.orchestration.processes import HANG_SECONDS, PROGRAM, REPOSITORY

TASK, MODEL = "level1/softmax", "by-heart"
TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}"
STEPS, RATE, ENOUGH = 400, 3e-3, 0.02


def learn_by_heart(folder: Path) -> str:
    """Writes a policy to `folder` whose answer to a task's prompt is one right program, which is returned."""
    variant = next(each for each in load_variants(TASK) if each.expect == "faster")
    renderer, task = PromptRenderer(), find_task(TASK, "cpu")
    prompt = renderer.one_shot(program_source(task), EvaluatorConfig().arch)
    response = renderer.response(variant.source, variant.analysis, variant.design)
    sizes = ScratchConfig(hidden_size=64, intermediate_size=128, layers=2, heads=2, kv_heads=1)
    model, tokenizer = make_policy(folder, [prompt, response], sizes, RunConfig("x").policy.max_length, seed=0)
    asked = tokenizer.encode(prompt, add_special_tokens=False)
    answer = [*tokenizer.encode(response, add_special_tokens=False), tokenizer.eos_token_id]
    train(model, asked, answer)
    model.save_pretrained(folder)
    # Apart from the model: beside one of Qwen2, transformers takes any tokenizer for Qwen2's own.
    tokenizer.save_pretrained(folder / "tokenizer")
    (folder / "chat.jinja").write_text(TEMPLATE)
    return variant.source


def train(model: PreTrainedModel, asked: list[int], answer: list[int]) -> None:
    """Until the answer is the likeliest one, token by token."""
    tokens, labels = torch.tensor([asked + answer]), torch.tensor([[-100] * len(asked) + answer])
    optimiser = torch.optim.AdamW(model.parameters(), lr=RATE)
    for _ in range(STEPS):
        loss = model(input_ids=tokens, labels=labels).loss
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if loss.item() < ENOUGH:
            return
    pytest.fail(f"the loss is still {loss.item():.3f} after {STEPS} steps")


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """vLLM's server with the model in `folder`; its address."""
    from actors.engine_options import prepare_environment

    before = dict(os.environ)
    prepare_environment(RolloutConfig())
    environment = dict(os.environ)
    os.environ.clear()
    os.environ.update(before)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = [
        "--served-model-name", MODEL, "--host", "127.0.0.1", "--port", str(port), "--enforce-eager",
        "--max-num-seqs", "4", "--chat-template", str(folder / "chat.jinja"), "--generation-config", "vllm",
        "--tokenizer", str(folder / "tokenizer"),
        "--kv-cache-memory-bytes", str(1 << 28), "--gpu-memory-utilization", "0.05",
    ]  # fmt: skip
    # Not the command `vllm`, which asks for the version of a package that the CPU build is named otherwise than.
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder), *options]
    with (folder / "server.log").open("w") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        wait_until_healthy(server, f"http://127.0.0.1:{port}/health", folder / "server.log")
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def wait_until_healthy(server: subprocess.Popen[bytes], address: str, log: Path) -> None:
    deadline = time.monotonic() + HANG_SECONDS
    while time.monotonic() < deadline:
        assert server.poll() is None, log.read_text()[-3000:]
        try:
            with urllib.request.urlopen(address, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    pytest.fail(log.read_text()[-3000:])


@pytest.mark.slow
def test_a_model_behind_vllms_own_server_teaches(tmp_path: Path) -> None:
    program = learn_by_heart(tmp_path / "model")
    with served(tmp_path / "model") as address:
        asking = "asking: {input_price: 3, output_price: 15}"
        words = [
            "local", "name=taught", f"root={tmp_path}", f"tasks.include=[{TASK}]", "tasks.levels=[1]",
            "tracking.enabled=false", "sft.teachers=[local]", "sft.successes=1", "sft.tries=1", "guard.enabled=false",
            f"sft.endpoints={{local: {{url: '{address}', model: {MODEL}, temperature: 0, max_tokens: 700, {asking}}}}}",
        ]  # fmt: skip
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
        environment.pop("RAY_ADDRESS", None)
        command = [sys.executable, *PROGRAM, "collect", *words, "--output", str(tmp_path / "lessons.jsonl")]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=HANG_SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = [json.loads(line) for line in (tmp_path / "lessons.jsonl").read_text().splitlines()]
    assert row["source"].strip() == program.strip()
    assert row["verdict"]["outcome"] == "ok"
    assert RunDirectory(str(tmp_path), "taught").answers().count == 1
    assert row["prompt_tokens"] > 100
    assert row["completion_tokens"] > 20
    assert row["cost"] == pytest.approx((3 * row["prompt_tokens"] + 15 * row["completion_tokens"]) / 1e6)

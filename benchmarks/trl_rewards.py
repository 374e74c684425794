"""TRL's GRPOTrainer on the CPU, with a service as its reward.

    python -m benchmarks.trl_rewards [--url http://127.0.0.1:8321] [--steps 20]

Needs TRL (`pip install trl`), and `warpsmith serve` at the URL. The policy is a model of under a million weights that
is made here and first learns, in a minute, to write the programs that ship with three tasks, right and wrong ones; so
that its samples are programs, and differ. Printed are, for each step, the mean reward and its deviation in the groups.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.tables import print_table
from configs.schema import ScratchConfig
from evaluators.compile.hints import needs_build
from evaluators.tasks.loader import load_variants
from learners.policy import make_policy
from learners.tokenizing import encode_response
from orchestration.client import Rewards

TASKS = ("level1/softmax", "level1/channel_layer_norm", "level1/gelu_tanh")
_LENGTH = 768  # tokens of prompt and response together
_BATCH, _RATE = 8, 2e-3  # of the lessons


def prompt_of(task: str) -> str:
    """What the policy is asked."""
    return f"Write a faster {task}.\n"


def lessons() -> list[tuple[str, str]]:
    """Prompts and responses: every program that ships with the tasks and is not compiled."""
    return [
        (prompt_of(task), f"```python\n{variant.source}```\n")
        for task in TASKS
        for variant in load_variants(task)
        if not needs_build(variant.source) and (not variant.profiles or "cpu" in variant.profiles)
    ]


def teach(model: Any, tokenizer: Any, steps: int) -> float:
    """Trains on the lessons with cross-entropy; returns the last loss."""
    rows = [
        tokenizer(prompt, add_special_tokens=False)["input_ids"] + encode_response(tokenizer, response)
        for prompt, response in lessons()
    ]
    longest = max(map(len, rows))
    ids = torch.tensor([row + [tokenizer.pad_token_id] * (longest - len(row)) for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
    optimiser = torch.optim.AdamW(model.parameters(), lr=_RATE, weight_decay=0.0)
    generator, loss = torch.Generator().manual_seed(0), torch.tensor(0.0)
    for step in range(steps):
        picked = torch.randint(len(rows), (_BATCH,), generator=generator)
        labels = ids[picked].masked_fill(mask[picked] == 0, -100)
        loss = model(input_ids=ids[picked], attention_mask=mask[picked], labels=labels).loss
        for group in optimiser.param_groups:
            group["lr"] = _RATE * min(1.0, (steps - step) / (steps / 2))
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
    return float(loss)


def train(url: str, steps: int, lesson_steps: int, folder: Path) -> list[dict[str, Any]]:
    """What TRL logs of each step."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    sizes = ScratchConfig(vocab_size=1024, hidden_size=128, intermediate_size=256, layers=3, heads=4, kv_heads=2)
    texts = [text for lesson in lessons() for text in lesson]
    model, tokenizer = make_policy(folder / "policy", texts, sizes, _LENGTH, 0)
    tokenizer.padding_side = "left"
    begun = time.monotonic()
    loss = teach(model, tokenizer, lesson_steps)
    print(f"taught {len(lessons())} lessons in {time.monotonic() - begun:.0f} s, loss {loss:.2f}", flush=True)

    rewards = Rewards(url)
    config = GRPOConfig(
        output_dir=str(folder / "trl"),
        max_steps=steps,
        per_device_train_batch_size=8,
        num_generations=8,
        max_completion_length=256,
        learning_rate=1e-4,
        temperature=1.0,
        beta=0.0,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        seed=0,
    )
    data = Dataset.from_list([{"prompt": prompt_of(task), "task": task} for task in TASKS] * 16)
    trainer = GRPOTrainer(
        model=model, reward_funcs=rewards.trl, args=config, train_dataset=data, processing_class=tokenizer
    )
    trainer.train()
    return [row for row in trainer.state.log_history if "reward" in row]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8321")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--lesson-steps", type=int, default=300)
    options = parser.parse_args()
    torch.manual_seed(0)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="warpsmith-trl-") as folder:
        logged = train(options.url, options.steps, options.lesson_steps, Path(folder))
    rows = [
        (number, *(f"{row[name]:.3f}" for name in ("reward", "reward_std", "loss", "grad_norm")))
        for number, row in enumerate(logged, start=1)
    ]
    print_table(
        f"{len(logged)} steps of TRL's GRPOTrainer in {time.monotonic() - begun:.0f} s",
        ["step", "reward", "deviation", "loss", "gradient"],
        rows,
    )


if __name__ == "__main__":
    main()

"""Sources of small tasks and of candidates for them, written from a line of Python each."""

from __future__ import annotations

from evaluators.records import Task


def task_of(model: str, inputs: str = "[torch.randn(n, n)]", arguments: str = "[]", top: str = "n = 160") -> Task:
    source = f"import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n{top}\n{model}\n"
    source += f"def get_inputs(): return {inputs}\ndef get_init_inputs(): return {arguments}\n"
    return Task("test/honest", 1, "honest", source)


def reference_of(task: Task) -> str:
    return task.source.replace("Model(", "ModelNew(")


def model(forward: str, init: str = "pass", name: str = "Model") -> str:
    return (
        f"import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\nclass {name}(nn.Module):\n"
        f"    def __init__(self):\n        super().__init__()\n        {init}\n"
        f"    def forward(self, *x):\n        {forward}\n"
    )


WEIGHT = "self.w = nn.Parameter(torch.randn(160, 160))"
TWICE = task_of(model("return torch.tanh(x[0] @ self.w) + torch.tanh(x[0] @ self.w)", WEIGHT))
HIDDEN_STATE = task_of(
    model(
        "self.h = torch.tanh(x[0] @ self.w * 0.05 + self.h); return self.h",
        WEIGHT + "; self.h = torch.zeros(160, 160)",
    )
)


DOUBLE = Task(
    "test/double",
    1,
    "double",
    """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x + x


def get_inputs():
    return [torch.randn(200, 300)]


def get_init_inputs():
    return []
""",
)

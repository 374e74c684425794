"""Runs a program twice in one process, with two libraries for its extension, and compares what it computes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from benchmarks.published import Program
from evaluators.shared.extension import ExtensionRequest

_SECONDS = 300.0
_RUN = """
import json, sys
import torch
from evaluators.shared.extension import ExtensionRequest
from evaluators.runner.interception import Interception
given = json.load(sys.stdin)
device = "cuda" if given["cuda"] else "cpu"
wanted, answers, asked = given["request"], given["answers"], []

def answer(number, request):
    if ExtensionRequest.from_json(request["extension"]).digest("") != wanted:
        return {"error": "another extension"}
    asked.append(number)
    return answers[number]

def named(source, name):
    scope = {"__name__": name, "__file__": name + ".py"}
    exec(compile(source, name + ".py", "exec"), scope)
    return scope

def run(number):
    served.number = number
    scope = named(given["candidate"], "candidate")
    torch.manual_seed(7)
    model = scope["ModelNew"](*init).to(device)
    torch.manual_seed(8)
    with torch.no_grad():
        try:
            out = model(*[x.clone().to(device) if isinstance(x, torch.Tensor) else x for x in inputs])
        except Exception as error:
            return type(error).__name__
    return [one.cpu() for one in (out if isinstance(out, (tuple, list)) else [out]) if isinstance(one, torch.Tensor)]

def alike(one, other):
    bits = [x.contiguous().reshape(-1).view(torch.uint8) for x in (one, other)]
    return torch.equal(*bits)

class Served:
    number = 0
served = Served()
intercepted = Interception(lambda request: answer(served.number, request))
intercepted.install()
reference = named(given["reference"], "reference")
torch.manual_seed(5)
inputs, init = reference["get_inputs"](), reference.get("get_init_inputs", list)()
theirs, ours, again = run(1), run(0), run(1)
if asked != [1, 0, 1]:
    outcome = "the extension was not asked for alike"
elif isinstance(ours, str) or isinstance(theirs, str):
    ends = [one if isinstance(one, str) else "fine" for one in (ours, theirs)]
    outcome = "both raise the same" if ends[0] == ends[1] else ", ".join(ends)
elif isinstance(again, str) or not all(map(alike, theirs, again)):
    outcome = "not the same twice by torch's build either"
elif len(ours) == len(theirs) and all(a.shape == b.shape and a.dtype == b.dtype for a, b in zip(ours, theirs)):
    same = all(map(alike, ours, theirs))
    near = all(torch.allclose(a, b, equal_nan=True) for a, b in zip(ours, theirs))
    outcome = "equal in every bit" if same else "equal within rounding" if near else "DIFFERENT"
else:
    outcome = "DIFFERENT"
print("\\n" + outcome)
"""


def compare(program: Program, request: ExtensionRequest, answers: list[dict[str, Any]]) -> str:
    """How the outputs of the two libraries in `answers` (as the interception takes them) compare."""
    cuda = any(name.endswith(".cu") or "cuda_runtime" in text for name, text in request.sources)
    given = {
        "cuda": cuda and torch.cuda.is_available(),
        "request": request.digest(""),
        "answers": answers,
        "candidate": program.candidate.source,
        "reference": program.task.source,
    }
    command = [sys.executable, "-c", _RUN]
    try:
        with tempfile.TemporaryDirectory() as folder:  # programs write where they stand
            done = subprocess.run(
                command,
                input=json.dumps(given),
                cwd=folder,
                env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])},
                capture_output=True,
                text=True,
                check=False,
                timeout=_SECONDS,
            )
    except subprocess.TimeoutExpired:
        return "took too long"
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        return f"ended with {done.returncode}: {(done.stderr.strip().splitlines() or [''])[-1][:100]}"
    return lines[-1]

"""Section `same` of `benchmarks/build.py`: whether a program computes the same with our extension and with torch's.

Each program runs in a process of its own, once with each of two libraries for its extension.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from benchmarks.build_jobs import Farm, jobs_of, mended_jobs, print_row
from benchmarks.build_programs import Asked
from benchmarks.published import Program
from evaluators.shared.extension import ExtensionRequest

_SECONDS = 300.0
# Runs the candidate with torch's library, with ours and with torch's again, and prints how the outputs compare.
_RUN = """
import json, sys
import torch
from evaluators.shared.extension import ExtensionRequest
from evaluators.runner.interception import Interception
given = json.load(sys.stdin)
device = "cuda" if given["cuda"] else "cpu"
wanted, answers, requested = given["request"], given["answers"], []
OURS, TORCHS = 0, 1
current = OURS

def answer(request):
    if ExtensionRequest.from_json(request["extension"]).digest("") != wanted:
        return {"error": "another extension"}
    requested.append(current)
    return answers[current]

def execute(source, name):
    scope = {"__name__": name, "__file__": name + ".py"}
    exec(compile(source, name + ".py", "exec"), scope)
    return scope

def run(number):
    global current
    current = number
    scope = execute(given["candidate"], "candidate")
    torch.manual_seed(7)
    model = scope["ModelNew"](*init).to(device)
    torch.manual_seed(8)
    with torch.no_grad():
        try:
            out = model(*[x.clone().to(device) if isinstance(x, torch.Tensor) else x for x in inputs])
        except Exception as error:
            return type(error).__name__
    return [x.cpu() for x in (out if isinstance(out, (tuple, list)) else [out]) if isinstance(x, torch.Tensor)]

def same_bits(first, second):
    bits = [x.contiguous().reshape(-1).view(torch.uint8) for x in (first, second)]
    return torch.equal(*bits)

interception = Interception(answer)
interception.install()
reference = execute(given["reference"], "reference")
torch.manual_seed(5)
inputs, init = reference["get_inputs"](), reference.get("get_init_inputs", list)()
theirs, ours, again = run(TORCHS), run(OURS), run(TORCHS)
if requested != [TORCHS, OURS, TORCHS]:
    outcome = "the extension was not asked for alike"
elif isinstance(ours, str) or isinstance(theirs, str):
    ends = [outputs if isinstance(outputs, str) else "fine" for outputs in (ours, theirs)]
    outcome = "both raise the same" if ends[0] == ends[1] else ", ".join(ends)
elif isinstance(again, str) or not all(map(same_bits, theirs, again)):
    outcome = "not the same twice by torch's build either"
elif len(ours) == len(theirs) and all(a.shape == b.shape and a.dtype == b.dtype for a, b in zip(ours, theirs)):
    same = all(map(same_bits, ours, theirs))
    near = all(torch.allclose(a, b, equal_nan=True) for a, b in zip(ours, theirs))
    outcome = "equal in every bit" if same else "equal within rounding" if near else "DIFFERENT"
else:
    outcome = "DIFFERENT"
print("\\n" + outcome)
"""


def same(work: Path, arch: str, asked: list[Asked]) -> list[dict[str, str]]:
    """The outcome for each program of the sample that both built. Must follow `cold` in the same call."""
    farm = Farm(work / "cold", arch)
    glue = str(farm.glue().folder / "warpsmith_glue.so")
    runs = []
    for program in asked:
        jobs = jobs_of([program])
        for job in [*jobs, *mended_jobs(jobs)]:
            entry = farm.build(job.request)
            by_torch = work / "torch" / job.request.digest("") / f"{job.request.module}.so"
            if by_torch.is_file() and entry.record["glue"]:
                library = str(entry.folder / "extension.so")
                ours = {"library": library, "module": job.request.module, "glue": glue}
                answers = [ours, ours | {"library": str(by_torch), "glue": ""}]
                runs.append((f"{job.program}, {job.kind}", program, answers))
    farm.close()

    def compare_named(named: tuple[str, Asked, list[dict[str, str]]]) -> dict[str, str]:
        name, program, answers = named
        row = {"program": name, "outcome": _compare(program.program, program.requests[0], answers)}
        print_row(row)
        return row

    with ThreadPoolExecutor(max(1, (os.cpu_count() or 1) // 4)) as pool:
        return list(pool.map(compare_named, runs))


def _compare(program: Program, request: ExtensionRequest, answers: list[dict[str, Any]]) -> str:
    """How the program's outputs compare with each of two libraries. `answers` are ours and torch's, in the form that
    `evaluators.runner.interception` takes."""
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
        with tempfile.TemporaryDirectory() as folder:  # programs may write to their current folder
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

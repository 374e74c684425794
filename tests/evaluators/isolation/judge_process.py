"""An evaluator in a process of its own, on a host of the kind MODE. It answers each line of JSON with one line.

`namespaces`: all that this machine allows. `container`: root, as in an unprivileged container, which may neither make
namespaces nor mount. `user`: neither root nor namespaces, so that programs run as the evaluator's own user. `bare`: the
same on a kernel without Landlock.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

USERS = {"user": 54322, "bare": 54323}
_START_SECONDS = 3.5
_CALL_SECONDS = 1.0
_LIMITS = {"memory_gib": 1.0, "output_mib": 16.0, "output_files": 1000}
_KEPT = (0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31)  # the capabilities of a container, as Docker has them
_NAMESPACES = {"x86_64": (272, 165, 442), "aarch64": (97, 40, 442)}  # unshare, mount, mount_setattr
_LANDLOCK = 444
_libc = ctypes.CDLL(None, use_errno=True)


def _reachable_python(folder: str) -> None:
    """Makes Python reachable for a user who may not enter its folder, in this process's own view of the files."""
    place = Path(sys.executable).resolve()
    private = next((above for above in reversed(place.parents) if not above.stat().st_mode & 0o001), None)
    if private is None:
        return
    kept = Path(folder) / "kept"
    kept.mkdir()
    commands = [
        ["mount", "--make-rprivate", "/"],
        ["mount", "--bind", sys.base_prefix, str(kept)],
        ["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", str(private)],
        ["mkdir", "-p", sys.base_prefix],
        ["mount", "--bind", str(kept), sys.base_prefix],
    ]
    for command in commands:
        subprocess.run(command, check=True)


def _refuse(numbers: tuple[int, ...]) -> None:
    from evaluators.sandbox import seccomp

    lines = [(0x20, 0, 0, 0), *seccomp._answered(numbers, 0x00050001), (0x06, 0, 0, 0x7FFF0000)]
    program = b"".join(seccomp.struct.pack("HBBI", *line) for line in lines)
    described = seccomp._Program(len(lines), program)
    assert _libc.prctl(22, 2, ctypes.byref(described), 0, 0) == 0


def restrict(mode: str, folder: str) -> None:
    """Takes from this process all that a host of the mode does not allow."""
    if mode == "namespaces":
        return
    assert _libc.unshare(0x00020000) == 0
    if mode != "container":
        _reachable_python(folder)
    refused = _NAMESPACES[platform.machine()] + ((_LANDLOCK,) if mode == "bare" else ())
    _refuse(refused)
    for capability in range(64):
        if capability not in _KEPT:
            _libc.prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP
    if mode != "container":
        os.setgroups([])
        user = USERS[mode]
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)


def serve() -> None:
    from configs.schema import LimitsConfig
    from evaluators.evaluator import Evaluator
    from evaluators.records import Task
    from tests.evaluators.patience import patience

    longer = patience()
    times = {"start_seconds": _START_SECONDS * longer, "call_seconds": _CALL_SECONDS * longer}
    limits = LimitsConfig(**times, **_LIMITS)  # type: ignore[arg-type]
    secret = os.environ["WARPSMITH_SECRET"].encode()
    buffer = ctypes.create_string_buffer(secret)
    with Evaluator("cpu", limits=limits) as evaluator:
        evaluator.start()
        about = {"pid": os.getpid(), "address": ctypes.addressof(buffer), "length": len(secret)}
        places = [str(evaluator.store), tempfile.gettempdir()]
        print(json.dumps({**about, "digest": hashlib.sha256(secret).hexdigest(), "places": places}), flush=True)
        for line in sys.stdin:
            asked = json.loads(line)
            verdict = evaluator.evaluate(Task("test/isolated", 1, "isolated", asked["task"]), asked["source"])
            answer = {
                "outcome": verdict.outcome,
                "message": verdict.message,
                "active": verdict.evaluator["containment"],
            }
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        restrict(*sys.argv[1:])
        os.execv(sys.executable, [sys.executable, __file__])  # until then a process that has changed its user is hidden
    serve()

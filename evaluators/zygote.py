"""The process that has torch imported and forks a runner per candidate. It holds no task, no seed and no output.

Started as `python -m evaluators.zygote FD` by `evaluators.zygote_handle`; ends when that end of the socket closes.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import signal
import socket
import sys
import tempfile
import time
import traceback
from typing import Any

from evaluators.protocol import Channel, PeerClosed
from evaluators.sandbox import Containment, contain_self, enter_user_namespace, hide_memory, new_pid_namespace

_PR_SET_CHILD_SUBREAPER = 36


def _descendants(root: int) -> list[int]:
    """Process ids below `root`, from /proc."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{name}/stat", "rb") as stat:
                parent = int(stat.read().rpartition(b")")[2].split()[1])
                children.setdefault(parent, []).append(int(name))
    found, queue = [], list(children.get(root, ()))
    while queue:
        process = queue.pop()
        found.append(process)
        queue.extend(children.get(process, ()))
    return found


class Zygote:
    """Serves fork and reap requests of one judge, one at a time."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.runners: set[int] = set()
        self.can_make_namespaces = enter_user_namespace()
        hide_memory()  # runners may be of the same user

    def serve(self) -> None:
        while True:
            try:
                message, descriptors = self.channel.receive()
            except PeerClosed:
                for process in list(self.runners):
                    self.reap(process)
                return
            if message["op"] == "fork":
                self.channel.send(self.fork(message, descriptors[0]))
            elif message["op"] == "reap":
                self.channel.send(self.reap(message["pid"]))
            elif message["op"] == "prepare_inductor":
                self.channel.send(_prepare_inductor(message["folder"]))

    def fork(self, message: dict[str, Any], descriptor: int) -> dict[str, Any]:
        """Forks a runner in a PID namespace of its own, where the host allows one: it sees and signals nobody outside,
        and everything it leaves behind dies with it.

        A process between makes the namespace, since without root there is no way back out of one. It ends at once, and
        we, the subreaper, become the runner's parent. The runner waits at a gate until then: it dies with its parent,
        and that must be us.
        """
        reading, writing = os.pipe()
        gate, held = os.pipe()
        between = os.fork()
        if between == 0:
            os.close(held)
            containment = Containment(**message["containment"])
            _fork_runner(containment, descriptor, message, writing, gate, self.can_make_namespaces)
        for ours in (writing, gate, descriptor):
            os.close(ours)
        with open(reading, "rb") as report:
            process = int(report.read() or 0)
        os.waitpid(between, 0)
        os.close(held)
        if process:
            self.runners.add(process)
        return {"pid": process}

    def reap(self, process: int) -> dict[str, Any]:
        """Kills a runner and everything it started, and says how it had ended if it had."""
        with contextlib.suppress(ChildProcessError):
            done, status = os.waitpid(process, os.WNOHANG)
            killed_by_us = done == 0
            if killed_by_us:
                os.kill(process, signal.SIGKILL)
                _, status = os.waitpid(process, 0)
            self.runners.discard(process)
            self._kill_orphans()
            return {"status": None if killed_by_us else status}
        self.runners.discard(process)
        return {"status": None}

    def _kill_orphans(self) -> None:
        """Without a PID namespace, what a runner left behind is re-parented to us, the subreaper: kill until none."""
        for _ in range(200):
            ours = self.runners.union(*(_descendants(runner) for runner in self.runners))
            orphans = [process for process in _descendants(os.getpid()) if process not in ours]
            if not orphans:
                return
            for process in orphans:
                with contextlib.suppress(ProcessLookupError, ChildProcessError):
                    os.kill(process, signal.SIGKILL)
                    os.waitpid(process, os.WNOHANG)
            time.sleep(0.002)


def _prepare_inductor(folder: str) -> dict[str, Any]:
    """Finds out which vector instructions Inductor can use, which it does with seconds of compiling in each new cache
    folder: runners that are forked later know. `folder` keeps what is compiled, for other zygotes."""
    from torch._inductor.cpu_vec_isa import valid_vec_isa_list

    os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
    try:
        return {"instructions": [str(one) for one in valid_vec_isa_list()]}
    finally:
        del os.environ["TORCHINDUCTOR_CACHE_DIR"]


def _fork_runner(
    containment: Containment, descriptor: int, message: dict[str, Any], report: int, gate: int, namespaces: bool
) -> None:
    """In the process between: forks the runner, reports its id, ends. Never returns."""
    code = 70
    try:
        namespaced = namespaces and new_pid_namespace()
        process = os.fork()
        if process == 0:
            os.close(report)
            os.read(gate, 1)  # ends when the zygote closes its end
            _become_runner(containment, descriptor, message, namespaced)
        os.write(report, str(process).encode())
        code = 0
    finally:
        os._exit(code)


def _become_runner(containment: Containment, descriptor: int, message: dict[str, Any], namespaced: bool) -> None:
    """In the forked child: contains itself, then serves the judge. Never returns."""
    code = 70
    try:
        active = contain_self(containment, {descriptor}, namespaced)
        os.environ.update(message["environment"])
        tempfile.tempdir = None  # the zygote's choice, where the runner may not write
        from evaluators.device import runner_device
        from evaluators.runner import Runner

        Runner(Channel(socket.socket(fileno=descriptor)), active, runner_device(message["device"])).serve()
        code = 0
    except BaseException:  # noqa: BLE001  (whatever it is, the judge shows it)
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def main(descriptor: int) -> None:
    """Imports what candidates need, tells the judge that it is ready, and serves."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    import torch
    import torch._dynamo
    import torch._inductor.compile_fx
    import torch.utils.cpp_extension

    import evaluators.device.cpu_runner
    import evaluators.runner

    with contextlib.suppress(ImportError):  # where there are GPUs
        import triton  # noqa: F401

        import evaluators.device.cuda_runner  # noqa: F401

    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()  # forked runners then neither scan nor copy what was imported here
    zygote = Zygote(Channel(socket.socket(fileno=descriptor)))
    zygote.channel.send({"ready": True, "torch": torch.__version__})
    zygote.serve()


if __name__ == "__main__":
    main(int(sys.argv[1]))

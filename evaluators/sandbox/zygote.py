"""The zygote: a process that has imported torch and forks a runner per candidate.

Runs before the program (still trusted). Here a candidate's process begins: `_become_runner` contains a forked child and
then serves the judge, which sends it the program. The zygote itself must never hold a task, a seed or an output.

`evaluators.host.zygote_handle` starts it as `python -m evaluators.sandbox.zygote FD`. It ends when the judge's end of
the socket closes.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import select
import signal
import socket
import sys
import tempfile
import time
import traceback
from typing import Any

from evaluators.sandbox import (
    Containment,
    contain_self,
    enter_user_namespace,
    hide_memory,
    lend_folders,
    new_pid_namespace,
)
from evaluators.sandbox.process_counts import members_of, parents_and_groups
from evaluators.shared.protocol import Channel, PeerClosed

_PR_SET_CHILD_SUBREAPER = 36
_END_SECONDS = 15.0  # until a killed process must have ended; one with much memory of a GPU takes seconds


class Zygote:
    """Serves the requests of one judge, one at a time."""

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
                self.channel.send(self.reap(message["pid"], message["patience"]))
            elif message["op"] == "lend":
                is_ours = message["pid"] in self.runners
                self.channel.send({"lent": is_ours and lend_folders(message["pid"], message["folders"])})
            elif message["op"] == "prepare_inductor":
                self.channel.send(_prepare_inductor(message["folder"]))
            elif message["op"] == "prepare_forms":
                self.channel.send(_prepare_forms())

    def fork(self, message: dict[str, Any], descriptor: int) -> dict[str, Any]:
        """Forks a runner, in a PID namespace of its own if the host allows it: such a runner sees and signals no
        process outside, and everything that it leaves behind dies with it.

        A process in between makes the namespace, since without root no process gets out of one again. It ends at once,
        and the zygote, the subreaper, becomes the runner's parent. The runner waits at a gate until then: it will die
        with its parent, which must be the zygote.
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

    def reap(self, process: int, patience: float = 0.0) -> dict[str, Any]:
        """Kills a runner and everything it started. Answers with the `status` of the runner if it had ended by itself,
        or does within `patience` seconds, and with the number of processes that are `left` of it.

        Does nothing if `process` is not a runner of this zygote: the number may be any process's."""
        if process not in self.runners:
            return {"status": None, "left": 0}
        deadline = time.monotonic() + _END_SECONDS
        self.runners.discard(process)
        status = None
        with contextlib.suppress(ChildProcessError, ProcessLookupError):
            # No other process can get the runner's number until the runner has been waited for.
            ended = _wait(process, time.monotonic() + patience)
            _kill_group(process)
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)  # a runner leads no group until it has contained itself
            if _wait(process, deadline):
                _, status = os.waitpid(process, 0)
            status = status if ended else None
        return {"status": status, "left": self._end_group(process, deadline) + self._end_orphans(deadline)}

    def _end_group(self, group: int, deadline: float) -> int:
        """Waits until a killed process group is empty; its orphans are the zygote's children. Returns how many
        processes are left."""
        while _kill_group(group):
            _wait_for_killed(group)
            if time.monotonic() > deadline:
                return len(members_of(group))
            time.sleep(0.001)
        return 0

    def _end_orphans(self, deadline: float) -> int:
        """Kills the processes below the zygote that belong to no runner, until there are none. Returns how many are
        left.

        Without the system-call filter a process may have left its group, and without a PID namespace it outlives its
        runner."""
        while orphans := self._orphans():
            for process in orphans:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            for process in orphans:
                _wait_for_killed(-process)
            if time.monotonic() > deadline:
                return len(orphans)
            time.sleep(0.001)
        return 0

    def _orphans(self) -> list[int]:
        """Ids of the processes below the zygote that are neither below a runner nor in the group of one."""
        processes = parents_and_groups()
        children: dict[int, list[int]] = {}
        for process, (parent, _) in processes.items():
            children.setdefault(parent, []).append(process)
        orphans, queue = [], list(children.get(os.getpid(), ()))
        while queue:
            process = queue.pop()
            if process not in self.runners and processes[process][1] not in self.runners:
                orphans.append(process)
                queue.extend(children.get(process, ()))
        return orphans


def _kill_group(group: int) -> bool:
    """Kills a process group, and returns whether there is any process in it, including dead ones that nobody has waited
    for. The kernel kills a group as a whole: a process that forks meanwhile is killed first."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return False
    except PermissionError:  # there is a process in it
        return True
    return True


def _wait(process: int, deadline: float) -> bool:
    """Whether a child process has ended by the deadline."""
    descriptor = os.pidfd_open(process)
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(max(0.0, 1000 * (deadline - time.monotonic()))))
    finally:
        os.close(descriptor)


def _wait_for_killed(group: int) -> None:
    """Waits for the dead children in a group (or for one process, given as a negative number), without blocking."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-group, os.WNOHANG)[0]:
            pass


def _prepare_inductor(folder: str) -> dict[str, Any]:
    """Imports Inductor, which takes seconds, for all runners that are forked later. If `folder` is given, lets it find
    out, too, which vector instructions it can use: in each new cache folder this takes it seconds of compiling. The
    folder keeps the results, for other zygotes."""
    import torch._dynamo
    import torch._inductor.compile_fx  # noqa: F401
    from torch._inductor.cpu_vec_isa import valid_vec_isa_list

    instructions: list[str] = []
    if folder:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        try:
            instructions = [str(instruction) for instruction in valid_vec_isa_list()]
        finally:
            del os.environ["TORCHINDUCTOR_CACHE_DIR"]
    gc.collect()
    gc.freeze()
    return {"instructions": instructions}


def _prepare_forms() -> dict[str, Any]:
    """Imports what operators on torch's `meta` device need, which takes a second, for all runners that are forked
    later."""
    import torch

    rows = torch.empty(2, 2, device="meta")
    torch.nn.functional.linear(rows @ rows, rows, rows[0])
    gc.collect()
    gc.freeze()
    return {}


def _fork_runner(
    containment: Containment, descriptor: int, message: dict[str, Any], report: int, gate: int, namespaces: bool
) -> None:
    """In the process in between: forks the runner, reports its id, ends. Never returns."""
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
        tempfile.tempdir = None  # it holds the zygote's choice: the runner may not write there
        from evaluators.runner.device import runner_device
        from evaluators.runner.serve import Runner

        Runner(Channel(socket.socket(fileno=descriptor)), active, runner_device(message["device"])).serve()
        code = 0
    except BaseException:  # noqa: BLE001  (the judge shows any of them)
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def main(descriptor: int) -> None:
    """Imports the libraries that most candidates need, tells the judge that the zygote is ready, and serves."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    import torch
    import torch.utils.cpp_extension

    import evaluators.runner.cpu
    import evaluators.runner.native
    import evaluators.runner.serve

    os.environ.pop("LD_PRELOAD", None)  # it is loaded; what a program starts needs no device memory of ours
    evaluators.runner.native.preload()

    with contextlib.suppress(ImportError):  # they are installed on machines with GPUs
        import triton  # noqa: F401

        import evaluators.runner.cuda
        import evaluators.runner.gate
    with contextlib.suppress(ImportError):
        import cupti.cupti  # noqa: F401  (which would take every runner some time)

    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()  # forked runners then neither scan nor copy the imported modules
    zygote = Zygote(Channel(socket.socket(fileno=descriptor)))
    zygote.channel.send({"ready": True, "torch": torch.__version__})
    zygote.serve()


if __name__ == "__main__":
    main(int(sys.argv[1]))

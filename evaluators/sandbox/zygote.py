"""The process that has torch imported and forks a runner per candidate. It holds no task, no seed and no output.

Started as `python -m evaluators.sandbox.zygote FD` by `evaluators.host.zygote_handle`. It ends when that end of the
socket closes.
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

from evaluators.sandbox import Containment, contain_self, enter_user_namespace, hide_memory, new_pid_namespace
from evaluators.sandbox.process_counts import members_of, parents_and_groups
from evaluators.shared.protocol import Channel, PeerClosed

_PR_SET_CHILD_SUBREAPER = 36


_END_SECONDS = 15.0  # for what has been killed; a process with much memory of a GPU takes some


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
        """Kills a runner and everything it started; says how it had ended if it had, and how many are left of it.

        Does nothing for a number that is no runner's of ours, which may be anybody's."""
        if process not in self.runners:
            return {"status": None, "left": 0}
        deadline = time.monotonic() + _END_SECONDS
        self.runners.discard(process)
        status = None
        with contextlib.suppress(ChildProcessError):
            # While the runner is not waited for, nobody else can get its number.
            ended = os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
            _kill_group(process)
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)  # before it has contained itself it leads no group
            if _wait(process, deadline):
                _, status = os.waitpid(process, 0)
            status = status if ended else None
        return {"status": status, "left": self._end_group(process, deadline) + self._end_orphans(deadline)}

    def _end_group(self, group: int, deadline: float) -> int:
        """Waits until a killed process group is empty: its orphans are our children. Returns how many are left."""
        while _kill_group(group):
            _wait_for_killed(group)
            if time.monotonic() > deadline:
                return len(members_of(group))
            time.sleep(0.001)
        return 0

    def _end_orphans(self, deadline: float) -> int:
        """Without the system-call filter a process may have left its group, and without a PID namespace it outlives its
        runner: what is below us, and of no runner, is killed until there is none. Returns how many are left."""
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
        """Process ids below us, and neither below a runner nor of its group."""
        known = parents_and_groups()
        children: dict[int, list[int]] = {}
        for process, (parent, _) in known.items():
            children.setdefault(parent, []).append(process)
        found, queue = [], list(children.get(os.getpid(), ()))
        while queue:
            process = queue.pop()
            if process not in self.runners and known[process][1] not in self.runners:
                found.append(process)
                queue.extend(children.get(process, ()))
        return found


def _kill_group(group: int) -> bool:
    """Whether there is anybody in it, be it dead and not waited for. The kernel kills a group as a whole: whoever forks
    meanwhile is killed first."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return False
    except PermissionError:  # there is somebody
        return True
    return True


def _wait(process: int, deadline: float) -> bool:
    """Whether a child of ours has ended in time."""
    descriptor = os.pidfd_open(process)
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(max(0.0, 1000 * (deadline - time.monotonic()))))
    finally:
        os.close(descriptor)


def _wait_for_killed(group: int) -> None:
    """Takes note of the dead of a group (or of one process, as a negative number) that are our children."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-group, os.WNOHANG)[0]:
            pass


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
        from evaluators.runner.device import runner_device
        from evaluators.runner.serve import Runner

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

    import evaluators.runner.cpu
    import evaluators.runner.serve

    with contextlib.suppress(ImportError):  # where there are GPUs
        import triton  # noqa: F401

        import evaluators.runner.cuda  # noqa: F401

    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()  # forked runners then neither scan nor copy what was imported here
    zygote = Zygote(Channel(socket.socket(fileno=descriptor)))
    zygote.channel.send({"ready": True, "torch": torch.__version__})
    zygote.serve()


if __name__ == "__main__":
    main(int(sys.argv[1]))

"""One runner as a process: forked, contained, stopped and continued, counted, and ended with all that it started.

Runs in the judge's process (trusted). It must never read what the runner sends: that is `evaluators.host.exchange`'s.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import socket
import stat
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from evaluators.failures import InfraError
from evaluators.host.census import Census
from evaluators.host.containment import demand
from evaluators.host.device import Device, Slot
from evaluators.host.folders import give_folder, own_prefix, remove_folder
from evaluators.host.locks import shared_folder
from evaluators.host.process_group import ProcessGroup
from evaluators.host.quota import Amount, FolderQuota, OverQuota, free_on
from evaluators.host.zygote_handle import ZygoteHandle
from evaluators.sandbox import Containment, hide_memory
from evaluators.sandbox.process_counts import cpu_seconds_of, scheduled
from evaluators.shared.protocol import Channel

_log = logging.getLogger(__name__)
_FIRST_USER = 61000
# Candidates may not read solutions of tasks, nor the ways in which evaluators are cheated.
_HIDDEN = tuple(str(Path(__file__).parents[1] / name) for name in ("tasks/bundled", "gauntlet"))
_NO_DEVICE = {"kind": "cpu", "threads": 1}
_PRINTED_BYTES = 500  # of a program's output, in messages
_STOP_SECONDS = 20.0
_SHORTEST_PAUSE, _LONGEST_PAUSE = 2e-5, 0.01
_FILES_IN_A_FOLDER = 4  # a folder holds as much as so many files of the largest size
_CAP_SYS_NICE = 23  # <linux/capability.h>
_DYING_SECONDS = 2.0  # an ending process closes its channel before it can be waited for, on a busy machine long before
_FREEING_SECONDS = 1.0  # some file systems free the room of an ended program a moment later
_STATUS_NAMES = {signal.SIGXCPU: "used up its CPU time", signal.SIGSEGV: "crashed with a segmentation fault"}


class ProgramRuns(Exception):
    """A process goes on although it was told to stop."""


@dataclass(frozen=True)
class RunnerLimits:
    """Limits of one runner; bytes, counts, seconds. `files`: in each folder in which it may write."""

    memory_bytes: int = 4 << 30
    device_memory_bytes: int = 48 << 30
    processes: int = 64
    file_bytes: int = 64 << 20
    files: int = 8000
    cpu_seconds: int = 600

    @property
    def quota(self) -> Amount:
        """What each folder may hold in which the runner may write."""
        return Amount(_FILES_IN_A_FOLDER * self.file_bytes, self.files)


class RunnerProcess:
    """The process of one runner, from its fork to its end.

    `pid` is 0 once the zygote has reaped it. `active` names the containment that the host allowed.
    """

    def __init__(
        self,
        zygote: ZygoteHandle,
        device: Device,
        slot: Slot,
        side: int,
        limits: RunnerLimits,
        environment: Mapping[str, str] | None = None,
        writable: Sequence[Path] = (),
        *,
        lendable: Path | None = None,
        on_device: bool = True,
    ) -> None:
        """Forks the runner, which waits for its first request. `side` (0 or 1) gives the two runners of a slot
        different users. The runner may write in its own folder and in the `writable` ones, and in those below
        `lendable` that are lent to it. Without `on_device` it is contained in the same way, and takes no hold of the
        device. Raises InfraError."""
        self._zygote = zygote
        self._folder = Path(tempfile.mkdtemp(prefix=own_prefix("runner")))
        self.active: tuple[str, ...] = ()
        self._user = user = _FIRST_USER + 2 * slot.index + side
        for folder in (self._folder, *writable):
            give_folder(folder, user)
        self._quota = FolderQuota((self._folder, *writable), limits.quota)
        self._lendable = lendable
        starts_elsewhere = _starts_elsewhere(device)
        cores = (*slot.cores, *slot.judge_cores) if starts_elsewhere else slot.cores
        self._cores = slot.cores if starts_elsewhere else ()  # it has them already, else
        ours, theirs = socket.socketpair()
        message = {
            "op": "fork",
            "containment": asdict(_containment(device, cores, limits, user, self._folder, writable, lendable)),
            "environment": {**_variables(str(self._folder)), **(environment or {})},
            "device": device.runner_options(limits.device_memory_bytes) if on_device else _NO_DEVICE,
        }
        try:
            self.pid = int(zygote.request(message, [theirs.fileno()])["pid"])
            if not self.pid:
                raise InfraError("the zygote could not fork a runner")
        except InfraError:
            ours.close()
            remove_folder(self._folder)
            raise
        finally:
            theirs.close()
        self._zygote_start = zygote.starts
        self._group = ProcessGroup(self.pid)
        self._left = 0  # processes of it that could not be ended
        self._killed = self._closed = False
        self._counts_cpu_time = not device.own_memory
        self.channel = Channel(ours, trusted=False)

    @property
    def is_alive(self) -> bool:
        """Whether it runs, and the zygote that forked it, too."""
        is_held = bool(self.pid) and self._zygote.starts == self._zygote_start and self._zygote.is_alive
        return is_held and not self._killed and not self._group.has_ended

    @property
    def stays_together(self) -> bool:
        """Whether no process that it started can leave its group, which is signalled and killed as a whole."""
        return self._group.holds_all

    def resume(self) -> None:
        """Continues the runner and all that it started."""
        self._group.resume()

    def halt(self) -> None:
        """Tells the runner and all that it started to stop."""
        if not self._killed:
            self._group.stop()

    def stop(self) -> float:
        """Stops the runner and all that it started. Returns the seconds of CPU time that it took until it stood still:
        what is in a system call ends that first. They are counted where the CPU does the work. Raises ProgramRuns if it
        goes on."""
        self.halt()
        before, pause = self.cpu_seconds() if self._counts_cpu_time else 0.0, _SHORTEST_PAUSE
        deadline = time.monotonic() + _STOP_SECONDS
        while self._group.is_running():
            if time.monotonic() > deadline:
                raise ProgramRuns("the program cannot be stopped")
            time.sleep(pause)  # ever longer: it may need our core to stop, and other load wants that core, too
            pause = min(2 * pause, _LONGEST_PAUSE)
        return max(0.0, self.cpu_seconds() - before) if self._counts_cpu_time else 0.0

    def note_start(self, active: tuple[str, ...]) -> None:
        """Takes note of the containment that the runner names, and keeps it on the slot's cores from now on, before any
        line of the program has run. Raises ContainmentError if it is not all that is required of the zygote's
        runners."""
        self.active = active
        for thread in os.listdir(f"/proc/{self.pid}/task") if self._cores else ():
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.sched_setaffinity(int(thread), self._cores)
        demand(self._zygote.required, active)
        self._group.holds_all = "seccomp" in active
        if not {"landlock", "own_user", "pid_namespace"}.intersection(active):
            hide_memory()  # the judge's own: nothing else keeps the runner from reading it

    def lend(self, folders: Sequence[Path]) -> bool:
        """Lets the runner, which runs no program yet, write in further folders. Returns whether it can: they must lie
        below `lendable`, and the host must let us mount. Raises InfraError."""
        place = self._lendable
        if place is None or not all(folder.is_relative_to(place) for folder in folders):
            return False
        if "read_only_host" not in self.active:
            return False
        for folder in folders:
            give_folder(folder, self._user)
        self._quota = FolderQuota((self._folder, *folders), self._quota.most)
        message = {"op": "lend", "pid": self.pid, "folders": [str(folder) for folder in folders]}
        return bool(self._zygote.request(message)["lent"])

    def cpu_seconds(self) -> float:
        """CPU time that it and all that it started have taken so far, as the kernel counts it."""
        return sum(scheduled(process)[0] for process in self._group.members())

    def waited_seconds(self) -> float:
        """Seconds for which its threads were ready to run and had no core, so far, as the kernel counts them."""
        return scheduled(self.pid)[1]

    def census(self) -> Census:
        """Its threads and the processes below it, as the kernel counts them."""
        children = self._group.others()
        seconds = sum(map(cpu_seconds_of, children))
        with contextlib.suppress(OSError):
            return Census(len(os.listdir(f"/proc/{self.pid}/task")), len(children), seconds)
        return Census(0, len(children), seconds)

    def check_quota(self) -> None:
        """Raises OverQuota if the program has written more than it may.

        If the disk is nearly full, ends the program. If that frees more than the quota, the program kept it in files
        without a name: raises OverQuota; else InfraError.
        """
        self._quota.check()
        disk = self._quota.drained_disk()
        if disk is None:
            return
        before, deadline = free_on(disk), time.monotonic() + _FREEING_SECONDS
        self.close()
        while not (freed := free_on(disk).less(before)).exceeds(self._quota.most):
            if time.monotonic() > deadline:
                raise InfraError(f"the disk of {disk} is nearly full")
            time.sleep(0.05)
        raise OverQuota(f"the program kept {freed} on the disk, and may write {self._quota.most} to a folder")

    def explain_no_room(self) -> str:
        """What a program may write, for one that found no room. Raises InfraError if the disk has less than that."""
        if (disk := self._quota.full_disk()) is not None:
            raise InfraError(f"the disk of {disk} is full")
        return f"a program may write {self._quota.most} to a folder"

    def last_output(self) -> str:
        """The last bytes that the program printed, decoded."""
        # The program may have put a link or a pipe in the file's place, if the host does not let us hide the file.
        with contextlib.suppress(OSError):
            descriptor = os.open(self._folder / "output.txt", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            with open(descriptor, "rb") as file:
                status = os.fstat(descriptor)
                if stat.S_ISREG(status.st_mode):
                    file.seek(max(0, status.st_size - _PRINTED_BYTES))
                    return file.read(_PRINTED_BYTES).decode(errors="replace").strip()
        return ""

    def explain_end(self) -> str:
        """Why the runner went silent: how its process ended, and the last that it printed. Raises InfraError if the
        zygote has died and the program cannot have killed it."""
        try:
            status = self._reap(_DYING_SECONDS)
        except InfraError:
            status = None
        if self._zygote.starts != self._zygote_start or not self._zygote.is_alive:
            if "pid_namespace" in self.active:  # the program cannot reach the zygote
                raise InfraError("the zygote died")
            return "the program ended the process that had started it"
        if status is None:
            return "the program closed the judge's pipe"
        printed = self.last_output()
        return f"{_ending(status)}: {printed}" if printed else _ending(status)

    def kill(self) -> None:
        """Kills the runner with everything it started, and does not wait for their end, as `close` does."""
        if not self._killed:
            self._killed = True
            self.channel.close()
            self._group.kill()

    def close(self) -> None:
        """Kills the runner with everything it started, and removes its folder. Never raises: the verdict stands."""
        if self._closed:
            return
        self._closed = True
        self.kill()
        try:
            self._reap()
        except InfraError as error:
            _log.warning("runner %d: %s", self._group.leader, error)
        for folder in {self._folder, *self._quota.overfull()}:
            remove_folder(folder)

    def end(self) -> None:
        """Closes it. Raises InfraError if something that it started is still there."""
        self.close()
        if self._left:
            raise InfraError(f"{self._left} processes of the program could not be ended")

    def _reap(self, patience: float = 0.0) -> int | None:
        """Has the zygote end all that is left of the runner. Returns the status with which the runner had ended by
        itself, or did within `patience` seconds, or None. Raises InfraError."""
        if not self.pid:
            return None
        process, self.pid = self.pid, 0
        reply = self._zygote.request({"op": "reap", "pid": process, "patience": patience})
        self._left = int(reply["left"])
        # A zygote that was started meanwhile does not know the runner: all that is left of it is still to be killed.
        self._group.gone = self._zygote.starts == self._zygote_start and not self._left
        return None if reply["status"] is None else int(reply["status"])


def _containment(
    device: Device,
    cores: Sequence[int],
    limits: RunnerLimits,
    user: int,
    folder: Path,
    writable: Sequence[Path],
    lendable: Path | None,
) -> Containment:
    return Containment(
        memory_bytes=limits.memory_bytes,
        processes=limits.processes,
        file_bytes=limits.file_bytes,
        folder_bytes=limits.quota.bytes,
        folder_files=limits.quota.files,
        cpu_seconds=limits.cpu_seconds,
        user=user,
        folder=str(folder),
        cores=cores,
        hidden=(*_HIDDEN, str(shared_folder()), *device.hidden),  # a program could hold the locks in the shared folder
        writable=tuple(map(str, writable)),
        lendable=str(lendable or ""),
        maps_device=device.own_memory,
    )


def _starts_elsewhere(device: Device) -> bool:
    """Whether a runner may start on the judge's cores, too: two that start at once on one core take twice as long. We
    must be allowed to move it to its own afterwards, which root may not be in a container."""
    if not device.starts_ahead:
        return False
    effective = re.search(r"^CapEff:\s*([0-9a-f]+)", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert effective is not None
    return os.geteuid() != 0 or bool(int(effective[1], 16) >> _CAP_SYS_NICE & 1)


def _variables(home: str) -> dict[str, str]:
    """Environment variables that keep all that a program writes in its own folder."""
    return {
        "HOME": home,
        "TMPDIR": home,
        "TORCHINDUCTOR_CACHE_DIR": f"{home}/inductor",
        "TORCH_EXTENSIONS_DIR": f"{home}/extensions",
        "TRITON_CACHE_DIR": f"{home}/triton",
        "USER": "candidate",
    }


def _ending(status: int) -> str:
    """How a process ended, in words, from the status that `waitpid` gave."""
    if not os.WIFSIGNALED(status):
        return f"the process ended with exit code {os.WEXITSTATUS(status)}"
    number = os.WTERMSIG(status)
    named = next((text for key, text in _STATUS_NAMES.items() if key == number), None)
    return f"the process {named or f'was ended by signal {number}'}"

"""Attacks of a program on the judge, and on programs that run after it. The text of this module is put into candidates.
It also runs by itself, to show that each attack succeeds if nothing contains it."""

import contextlib
import ctypes
import fcntl
import hashlib
import json
import os
import resource
import socket
import struct
import sys
from pathlib import Path

MARK = "warpsmith-" + "secret-"  # in two parts, so that a search for the secret does not find this text
libc = ctypes.CDLL(None, use_errno=True)


def call(number, *arguments):
    """A system call by its number on x86-64, or OSError."""
    result = libc.syscall(number, *(ctypes.c_long(one) if isinstance(one, int) else one for one in arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


class Attacks:
    """One attack a method. It raises OSError if it is refused, and returns whether it succeeded."""

    def __init__(self, about):
        self.judge, self.address, self.length = about["pid"], about["address"], about["length"]
        self.digest, self.about = about["digest"], about

    def is_secret(self, data):
        start = data.find(MARK.encode())
        return start >= 0 and hashlib.sha256(data[start : start + self.length]).hexdigest() == self.digest

    def read_memory_file(self):
        with open(f"/proc/{self.judge}/mem", "rb", 0) as file:
            file.seek(self.address)
            return self.is_secret(file.read(self.length))

    def read_by_process_vm_readv(self):
        got = ctypes.create_string_buffer(self.length)
        ours = (ctypes.c_size_t * 2)(ctypes.addressof(got), self.length)
        theirs = (ctypes.c_size_t * 2)(self.address, self.length)
        call(310, self.judge, ours, 1, theirs, 1, 0)
        return self.is_secret(got.raw)

    def read_trace(self):
        call(101, 0x4206, self.judge, 0, 0)  # PTRACE_SEIZE
        return True

    def read_descriptor_of_the_judge(self):
        os.close(call(438, os.pidfd_open(self.judge), 1, 0))  # pidfd_getfd
        return True

    def read_environment(self):
        return self.is_secret(Path(f"/proc/{self.judge}/environ").read_bytes())

    def read_maps(self):
        return bool(Path(f"/proc/{self.judge}/maps").read_bytes())

    def read_open_files(self):
        return bool(os.readlink(f"/proc/{self.judge}/fd/1"))

    def read_root(self):
        return bool(os.listdir(f"/proc/{self.judge}/root/"))

    def read_folder(self):
        return bool(os.readlink(f"/proc/{self.judge}/cwd"))

    def read_performance_events(self):
        about = struct.pack("IIQ", 1, 128, 0).ljust(128, b"\0")  # the software clock
        os.close(call(298, ctypes.c_char_p(about), self.judge, -1, -1, 0))
        return True

    def read_page_faults(self):
        os.close(call(323, 0))  # userfaultfd
        return True

    def read_compare(self):
        call(312, os.getpid(), self.judge, 1, 0, 0)  # kcmp
        return True

    def read_memory_of_any_other(self):
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) != os.getpid():
                with contextlib.suppress(OSError):
                    os.close(os.open(f"/proc/{name}/mem", os.O_RDONLY))
                    return True
        return False

    def read_inherited_memory(self):
        with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", 0) as memory:
            for line in maps:
                span, rights, *_ = line.split()
                start, end = (int(one, 16) for one in span.split("-"))
                if not rights.startswith("rw") or end - start > 1 << 28:
                    continue
                with contextlib.suppress(OSError):
                    memory.seek(start)
                    data = memory.read(end - start)
                    at = data.find(MARK.encode())
                    while at >= 0:
                        if self.is_secret(data[at : at + self.length]):
                            return True
                        at = data.find(MARK.encode(), at + 1)
        return False

    def read_inherited_environment(self):
        return self.is_secret(Path("/proc/self/environ").read_bytes())

    def read_inherited_descriptors(self):
        for descriptor in map(int, os.listdir("/proc/self/fd")):
            with contextlib.suppress(OSError):
                if self.is_secret(os.pread(descriptor, 4096, 0)):
                    return True
        return False

    def reach_judge_by_signal(self):
        os.kill(self.judge, 23)  # SIGURG, which does nothing
        return True

    def reach_judge_by_priority(self):
        os.setpriority(os.PRIO_PROCESS, self.judge, os.getpriority(os.PRIO_PROCESS, self.judge))
        return True

    def reach_judge_by_scheduler(self):
        os.sched_setscheduler(self.judge, os.SCHED_OTHER, os.sched_param(0))
        return True

    def reach_judge_by_affinity(self):
        os.sched_setaffinity(self.judge, os.sched_getaffinity(self.judge))
        return True

    def reach_judge_by_limits(self):
        resource.prlimit(self.judge, resource.RLIMIT_CORE)
        return True

    def reach_judge_by_oom_score(self):
        path = Path(f"/proc/{self.judge}/oom_score_adj")
        path.write_text(path.read_text())
        return True

    def reach_abstract_socket(self):
        with socket.socket(socket.AF_UNIX) as end:
            end.connect("\0" + self.about["abstract"])
        return True

    def reach_socket_in_a_folder(self):
        with socket.socket(socket.AF_UNIX) as end:
            end.connect(self.about["socket"])
        return True

    def reach_network(self):
        with socket.socket() as end:
            end.connect(("127.0.0.1", self.about["port"]))
        return True

    def reach_datagrams_in_a_folder(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
            end.sendto(b"hello", self.about["datagrams"])
        return True

    def leave_abstract_socket(self):
        socket.socket(socket.AF_UNIX).bind("\0" + self.about["abstract"] + "-left")
        return True

    def leave_port(self):
        end = socket.socket()
        end.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        end.bind(("127.0.0.1", 0))
        return True

    def leave_core_dump(self):
        return resource.getrlimit(resource.RLIMIT_CORE)[1] != 0

    def leave_shared_memory(self):
        call(72 - 41, call(29, 0, 4096, 0o1600), 0, 0)  # shmctl(IPC_RMID) of shmget
        return True

    def leave_semaphores(self):
        call(66, call(64, 0, 1, 0o1600), 0, 0)  # semctl(IPC_RMID) of semget
        return True

    def leave_messages(self):
        call(71, call(68, 0, 0o1600), 0, 0)  # msgctl(IPC_RMID) of msgget
        return True

    def leave_message_queue(self):
        os.close(call(240, b"warpsmith-queue", os.O_CREAT | os.O_RDWR, 0o600, None))  # mq_open
        call(241, b"warpsmith-queue")
        return True

    def leave_process_group(self):
        child = os.fork()
        if child == 0:
            with contextlib.suppress(OSError):
                os.setsid()
            os._exit(os.getpgid(0) == os.getpid())
        return os.waitpid(child, 0)[1] != 0

    def leave_user_namespace(self):
        child = call(56, 0x10000000 | 17, 0, 0, 0, 0)  # clone(CLONE_NEWUSER)
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        return True

    def leave_lock(self):
        with open(self.about["lock"]) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True

    def leave_files(self):
        """Leaves files wherever another program, or the next one, would find them."""
        left = 0
        for place in self.about["places"]:
            with contextlib.suppress(OSError):
                (Path(place) / self.about["file"]).touch()
                left += 1
        return left > 0


def report(about):
    """By attack: whether it succeeded, or the number of the error with which it was refused."""
    attacks, found = Attacks(about), {}
    for name in sorted(vars(Attacks)):
        if name.startswith(("read_", "reach_", "leave_")):
            try:
                found[name] = bool(getattr(attacks, name)())
            except (OSError, ValueError) as error:
                found[name] = getattr(error, "errno", None) or str(error)
    return found


if __name__ == "__main__":  # without any containment; the argument holds the secret, so memory holds it, too
    print(json.dumps(report(json.loads(sys.argv[1]))))

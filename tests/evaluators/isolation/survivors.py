"""Ways in which a process outlives its parent. The text of this module is put into candidates. It also runs by itself,
to show that each process survives if nothing contains it."""

import contextlib
import ctypes
import fcntl
import os
import signal
import sys
import time

SECONDS = 25.0  # after which all that was started ends by itself
libc = ctypes.CDLL(None)


def rename(mark):
    libc.prctl(15, mark.encode(), 0, 0, 0)  # PR_SET_NAME, which children inherit


def hold(path):
    """Locks a file as long as any process lives that was forked from here, even if it forks without end."""
    fcntl.flock(os.open(path, os.O_RDONLY), fcntl.LOCK_SH)


def rest():
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        time.sleep(0.2)


def daemon():
    """Forks twice and has a session of its own."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.closerange(0, 100)
            rest()


def group():
    """Has a process group of its own."""
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)
    rest()


def stopped():
    signal.alarm(int(SECONDS))
    os.kill(os.getpid(), signal.SIGSTOP)


def adopter():
    """Becomes the parent of the orphans below itself."""
    libc.prctl(36, 1, 0, 0, 0)
    daemon()
    rest()


def waits_in_the_kernel():
    """Waits in the kernel, where only SIGKILL reaches it, for a child that shares its memory and never returns it."""
    stack = ctypes.create_string_buffer(1 << 16)
    body = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(lambda _: libc.sleep(int(SECONDS)))
    top = ctypes.c_void_p(ctypes.addressof(stack) + (1 << 16) - 64)
    libc.clone(body, top, 0x4000 | signal.SIGCHLD, None)  # CLONE_VFORK


def hops():
    """Becomes another process all the time, faster than /proc can be read."""
    libc.signal(signal.SIGCHLD, ctypes.c_void_p(1))  # SIG_IGN
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        if os.fork():
            os._exit(0)


def multiplies():
    """Forks without end, as far as the limits allow."""
    until, most = time.monotonic() + SECONDS, 12
    for _ in range(most):
        with contextlib.suppress(OSError):
            os.fork()
        time.sleep(0.01)
        if len(os.listdir("/proc")) > 600:
            break
    while time.monotonic() < until:
        time.sleep(0.2)


WAYS = {one.__name__: one for one in (daemon, group, stopped, adopter, waits_in_the_kernel, hops, multiplies)}


def start(way, mark):
    """Starts one of the ways in a child, and gives it some time."""
    if os.fork() == 0:
        try:
            rename(mark)
            for _ in range(3 if way == "hops" else 1):
                if way != "hops" or os.fork() == 0:
                    WAYS[way]()
        finally:
            os._exit(0)
    time.sleep(0.3)


if __name__ == "__main__":
    hold(sys.argv[3])
    start(*sys.argv[1:3])

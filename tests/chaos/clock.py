"""A calendar clock that jumps, for the processes of one run alone.

A small library comes before the C library (LD_PRELOAD) and adds an offset, which stands in a file, to the calendar time
that programs are told. Monotonic clocks stay as they are, as on a machine whose clock is set.
"""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

_SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long long *offset;
static int (*real)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("CHAOS_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    real = dlsym(RTLD_NEXT, "clock_gettime");
    if (file < 0) return;
    void *page = mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (page != MAP_FAILED) offset = page;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(clock, now);
    if (!failed && offset && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += *offset;
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    int failed = clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return failed;
}

time_t time(time_t *stored) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (stored) *stored = now.tv_sec;
    return now.tv_sec;
}
"""


class Clock:
    """The offset, and the environment of the processes that it holds for."""

    def __init__(self, folder: Path) -> None:
        """Compiles the library in `folder`. Raises CalledProcessError if there is no C compiler."""
        source, library, self._file = folder / "clock.c", folder / "clock.so", folder / "offset"
        source.write_text(_SOURCE)
        subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", str(library), str(source), "-ldl"], check=True)
        self.seconds = 0
        self.set(0)
        for path in (library, self._file):
            path.chmod(0o644)
        self.environment = {"LD_PRELOAD": str(library), "CHAOS_CLOCK": str(self._file)}

    def set(self, seconds: int) -> None:
        """Makes the clock differ from the machine's by so many seconds."""
        self.seconds = seconds
        mode = "r+b" if self._file.exists() else "wb"
        with open(self._file, mode) as file:
            file.write(struct.pack("q", seconds))

"""A calendar clock that jumps, for the processes of one run alone.

A small library comes before the C library (LD_PRELOAD) and adds an offset, which stands in a file, to the calendar time
that programs are told, and takes it off the calendar times until which they wait: else each wait would end at once, or
hours late, and a process would turn in circles. Monotonic clocks stay as they are, as on a machine whose clock is set.
A wait that is under way when the clock jumps takes as long as it would have taken.
"""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

_SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
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

/* A deadline in the machine's calendar time. Condition variables do not tell their clock: a monotonic one has not
   counted a billion seconds yet. */
static const struct timespec *machine(const struct timespec *deadline, struct timespec *shifted) {
    if (!offset || !deadline || deadline->tv_sec < 1000000000) return deadline;
    *shifted = *deadline;
    shifted->tv_sec -= *offset;
    return shifted;
}

#define NEXT(name) static __typeof__(&name) next; if (!next) next = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

int pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *until) {
    struct timespec shifted;
    static __typeof__(&pthread_cond_timedwait) next;
    if (!next) next = (__typeof__(next))dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
    if (!next) next = (__typeof__(next))dlsym(RTLD_NEXT, "pthread_cond_timedwait");
    return next(cond, mutex, machine(until, &shifted));
}

int pthread_cond_clockwait(
    pthread_cond_t *cond, pthread_mutex_t *mutex, clockid_t clock, const struct timespec *until
) {
    struct timespec shifted;
    NEXT(pthread_cond_clockwait);
    return next(cond, mutex, clock, machine(until, &shifted));
}

int pthread_mutex_timedlock(pthread_mutex_t *mutex, const struct timespec *until) {
    struct timespec shifted;
    NEXT(pthread_mutex_timedlock);
    return next(mutex, machine(until, &shifted));
}

int sem_timedwait(sem_t *semaphore, const struct timespec *until) {
    struct timespec shifted;
    NEXT(sem_timedwait);
    return next(semaphore, machine(until, &shifted));
}

int sem_clockwait(sem_t *semaphore, clockid_t clock, const struct timespec *until) {
    struct timespec shifted;
    NEXT(sem_clockwait);
    return next(semaphore, clock, machine(until, &shifted));
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *until, struct timespec *left) {
    struct timespec shifted;
    NEXT(clock_nanosleep);
    return next(clock, flags, flags & TIMER_ABSTIME ? machine(until, &shifted) : until, left);
}

int timerfd_settime(int timer, int flags, const struct itimerspec *set, struct itimerspec *before) {
    struct itimerspec shifted = *set;
    NEXT(timerfd_settime);
    if (flags & TFD_TIMER_ABSTIME) machine(&set->it_value, &shifted.it_value);
    return next(timer, flags, &shifted, before);
}

long syscall(long number, ...) {
    static long (*next)(long, ...);
    if (!next) next = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    struct timespec shifted;
    long argument[6];
    va_list given;
    va_start(given, number);
    for (int index = 0; index < 6; index++) argument[index] = va_arg(given, long);
    va_end(given);
    if (number == SYS_futex && (argument[1] & FUTEX_CLOCK_REALTIME))
        argument[3] = (long)machine((const struct timespec *)argument[3], &shifted);
    return next(number, argument[0], argument[1], argument[2], argument[3], argument[4], argument[5]);
}
"""


class Clock:
    """The offset, and the environment of the processes that it holds for."""

    def __init__(self, folder: Path) -> None:
        """Compiles the library in `folder`. Raises CalledProcessError if there is no C compiler."""
        source, library, self._file = folder / "clock.c", folder / "clock.so", folder / "offset"
        source.write_text(_SOURCE)
        subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", str(library), str(source), "-ldl"], check=True)
        self.seconds = self.latest = 0
        self.set(0)
        for path in (library, self._file):
            path.chmod(0o644)
        self.environment = {"LD_PRELOAD": str(library), "CHAOS_CLOCK": str(self._file)}

    def set(self, seconds: int) -> None:
        """Makes the clock differ from the machine's by so many seconds. `latest` are the most so far."""
        self.seconds, self.latest = seconds, max(seconds, self.latest)
        mode = "r+b" if self._file.exists() else "wb"
        with open(self._file, mode) as file:
            file.write(struct.pack("q", seconds))

"""A server whose wall clock is wrong: a small library is loaded before the C library, and adds seconds.

Before: a C compiler, which the tests have anyway. After: chaos runs and tests with brokers whose clock is off.
Source: ld.so(8), LD_PRELOAD; clock_gettime(2).

The monotonic clock and the times of files stay right, as on a machine whose clock was set wrong.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import servers

_SOURCE = """
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static long shift(void) { const char *given = getenv("CLOCK_SHIFT_S"); return given ? atol(given) : 0; }
int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = syscall(SYS_clock_gettime, clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += shift();
    return failed;
}
int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    int failed = syscall(SYS_gettimeofday, now, zone);
    if (!failed && now) now->tv_sec += shift();
    return failed;
}
time_t time(time_t *into) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (into) *into = now.tv_sec;
    return now.tv_sec;
}
"""


class ShiftedClock:
    """Shifts the wall clocks of servers, from their next start on."""

    def __init__(self, folder: Path) -> None:
        """Compile the library into `folder`."""
        source, self._library = folder / "shifted_clock.c", folder / "shifted_clock.so"
        source.write_text(_SOURCE)
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", self._library, source], check=True)

    def shift(self, server: servers.Kafka, seconds: int) -> None:
        """Let the server's next start be so many seconds ahead; 0 makes its clock right again."""
        for name in ("LD_PRELOAD", "CLOCK_SHIFT_S"):
            server.environment.pop(name, None)
        if seconds:
            server.environment |= {"LD_PRELOAD": str(self._library), "CLOCK_SHIFT_S": str(seconds)}

"""Time as a test may judge it: see clock.h, whose Stopwatch, Patience and soon these are. Seconds throughout."""
import os
import time


def stalled():
    """How long something of this entry was ready and had no processor, since a time in the past; 0 if it is not known."""
    try:
        with open(os.environ["DTRUN_TEST_PRESSURE"]) as file:
            return int(file.readline().rsplit("total=", 1)[1]) / 1e6
    except (KeyError, OSError, IndexError, ValueError):
        return 0.0


class Stopwatch:
    def __init__(self):
        self._begin, self._stalled = time.monotonic(), stalled()

    def fair(self):
        """Wall time without the stalls, but an eighth of it at least. For upper bounds."""
        return max(self.wall() - (stalled() - self._stalled), self.wall() / 8)

    def wall(self):
        """For lower bounds, which load cannot break."""
        return time.monotonic() - self._begin


class Patience:
    """How long a test waits for what must come, in fair time."""

    def __init__(self, limit):
        self._limit, self._watch = limit, Stopwatch()

    def is_over(self):
        return self._watch.fair() > self._limit


def eventually(condition, limit=60):
    """What `condition` returns once that is true; the last, false one when patience is over."""
    patience, rest = Patience(limit), 0.001
    while not (found := condition()) and not patience.is_over():
        time.sleep(rest)
        rest = min(2 * rest, 0.02)
    return found


def soon(seconds):
    """A time that a test sets short in the product; the launcher hears of it."""
    if path := os.environ.get("DTRUN_TEST_SHORT_TIMES"):
        with open(path, "a") as file:
            file.write(f"{int(seconds * 1000 + 0.999)}\n")
    return seconds

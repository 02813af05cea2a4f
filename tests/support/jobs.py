"""Jobs of dtrun as a test in Python sees them: their ports, what they write, what dtrun tells of them."""

import json
import pathlib
import random
import shutil
import socket
import subprocess

from clock import eventually


def free_port():
    """One that was free a moment ago. The kernel lends it to no connection: those have ports from 32768 on."""
    while True:
        with socket.socket() as probe:
            port = random.randint(15000, 32000)
            try:
                probe.bind(("", port))
                return port
            except OSError:
                pass


class Lines:
    """Lines of JSON that are appended to a file, each read once."""

    def __init__(self, path):
        self.path, self._read, self._lines = path, 0, []

    def all(self):
        """Those that are whole by now."""
        if self.path.exists():
            with open(self.path, "rb") as file:
                file.seek(self._read)
                whole, newline, _ = file.read().rpartition(b"\n")
            self._lines += map(json.loads, whole.splitlines())
            self._read += len(whole + newline)
        return self._lines

    def of(self, event):
        return [line for line in self.all() if line["event"] == event]


def lines_of(path, event):
    """Of a file of JSON as it is now: a training that goes back takes lines back."""
    return Lines(pathlib.Path(path)).of(event)


def status(dtrun, run_id, *options, **how):
    """What `dtrun status` tells of a run; empty before it tells anything."""
    asked = subprocess.run([dtrun, "status", "--json", run_id, *options], capture_output=True, text=True, check=False, **how)
    runs = json.loads(asked.stdout) if asked.returncode == 0 else []
    return runs[0] if runs else {}


def wait_for(condition, what=""):
    """What the condition comes to; an error if it does not within a minute and a half of fair time."""
    found = eventually(condition, 90)
    assert found, f"not so in time: {what or getattr(condition, '__name__', 'condition')}"
    return found


def exit_code(process, limit=90):
    """Of a program that ends within the limit; None if it does not."""
    eventually(lambda: process.poll() is not None, limit)
    return process.returncode


def stopping_dtrun(build, folder):
    """A dtrun whose worker stops as DTRUN_TEST_STOP says (tests/e2e/stop_point_worker.cc)."""
    for program, name in (("bin/dtrun", "dtrun"), ("tests/stop_point_worker", "dtrun-worker")):
        shutil.copy(build / program, folder / name)
    return folder / "dtrun"

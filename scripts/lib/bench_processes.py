"""Programs that scripts/bench runs: each ends with all that it started, whatever happens meanwhile. How long one takes,
what it says and when, what it costs."""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import threading
import time
import uuid

from bench_common import ROOT, BenchError, summary

# The key that a dtrun of several nodes makes itself is not the user's.
CONFIGURATION = {"XDG_CONFIG_HOME": str(ROOT / "build" / "config")}
MARK = "DTRUN_BENCH_PROGRAM"  # in the environment of a program and of everything that it starts
RUN_LIMIT_S = 120
END_LIMIT_S = 10  # from SIGTERM to SIGKILL


def processes_with(*entries):
    """Every process of this host whose environment has all of `entries` ("NAME=value")."""
    wanted = {entry.encode() for entry in entries}
    for path in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if path.name.isdigit() and wanted <= set((path / "environ").read_bytes().split(b"\0")):
                yield int(path.name)


class Program:
    """A program that runs as long as the `with` block; at the end of it nothing that it started is left.
    A program that runs longer than `limit_s` is killed, and the block raises BenchError."""

    def __init__(self, argv, limit_s=RUN_LIMIT_S, environment=None, **streams):
        mark = uuid.uuid4().hex
        self.name = " ".join(map(str, argv))
        self.mark = f"{MARK}={mark}"
        self.limit_s = limit_s
        self.late = False
        self.process = subprocess.Popen(argv, cwd=ROOT, env={**os.environ, **CONFIGURATION, **(environment or {}), MARK: mark},
                                        **{"stdin": subprocess.DEVNULL, **streams})
        # A thread, since Popen.wait() with a limit sleeps up to 50 ms between two looks.
        self.watchdog = threading.Timer(limit_s, self.end_late)
        self.watchdog.daemon = True
        self.watchdog.start()

    @property
    def pid(self):
        return self.process.pid

    def ended(self):
        return self.process.poll() is not None

    def pids(self, *more):
        """Every process that this program started, itself included, whose environment also has `more`."""
        return processes_with(self.mark, *more)

    def kill_all(self):
        for pid in list(self.pids()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def end_late(self):
        self.late = True
        self.kill_all()

    def end(self):
        self.watchdog.cancel()
        if not self.ended():
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(END_LIMIT_S)
        self.kill_all()
        self.process.wait()

    def close_streams(self):
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.end()
        self.close_streams()
        # The late end is the reason of any Exception in the block.
        if self.late and (kind is None or issubclass(kind, Exception)):
            raise BenchError(f"no end within {self.limit_s:g} s", self.name) from None

    def ending(self):
        code = self.process.poll()
        return f"exit code {code}" if code is None or code >= 0 else signal.Signals(-code).name


class Job(Program):
    """A launcher and what its workers said, each line with the time of its arrival."""

    def __init__(self, argv, environment):
        super().__init__(argv, limit_s=3 * RUN_LIMIT_S, environment=environment, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True)
        self.lines = []
        self.errors = []
        self.silent = False  # its output has ended
        self.arrived = threading.Condition()
        self.readers = [threading.Thread(target=self.read_out, daemon=True),
                        threading.Thread(target=lambda: self.errors.extend(self.process.stderr), daemon=True)]
        for reader in self.readers:
            reader.start()

    def read_out(self):
        for line in self.process.stdout:
            now = time.perf_counter()
            with self.arrived:
                self.lines.append((now, line))
                self.arrived.notify_all()
        with self.arrived:
            self.silent = True
            self.arrived.notify_all()

    def close_streams(self):
        for reader in self.readers:
            reader.join(END_LIMIT_S)
        super().close_streams()

    def wait_for_up(self, world, rank=None, after=0.0, limit_s=RUN_LIMIT_S):
        """When the first worker of such a world and rank said so, later than `after`."""
        pattern = re.compile(rf"up rank={'[0-9]+' if rank is None else rank} world={world}\b")

        def found():
            return next((at for at, line in self.lines if at > after and pattern.search(line)), None)

        with self.arrived:
            self.arrived.wait_for(lambda: found() or self.silent, timeout=limit_s)
            if found():
                return found()
        why = "before the launcher ended" if self.silent else f"within {limit_s:g} s"
        raise BenchError(f"no worker of a world of {world} came up {why}", self.said())

    def said(self):
        if self.silent:
            self.readers[1].join(END_LIMIT_S)  # the last words are the reason
        return "".join([f"{self.name}\n"] + [line for _, line in self.lines] + self.errors)


def run(argv, limit_s=RUN_LIMIT_S):
    """Wall seconds and standard output of a program that ends with 0."""
    begin = time.perf_counter()
    with Program(argv, limit_s, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:
        out, errors = (text.decode(errors="replace") for text in program.process.communicate())
        seconds = time.perf_counter() - begin
    if program.process.returncode != 0:
        raise BenchError(program.ending(), f"{program.name}\n{out}{errors}")
    return seconds, out


def milliseconds(argv, repeats):
    run(argv)  # the page cache is warm from here on
    return summary([run(argv)[0] * 1e3 for _ in range(repeats)])


def status_kb(pid, field):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1])
    raise BenchError(f"/proc/{pid}/status has no {field}")


def cpu_seconds(pid):
    """User and system time of all threads: nanoseconds of the scheduler where the kernel keeps them."""
    tasks = list(pathlib.Path(f"/proc/{pid}/task").iterdir())
    try:
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9
    except OSError:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def children_of(pid):
    """Pid and command name of each child."""
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            with contextlib.suppress(OSError):  # it may just have gone
                yield int(child), pathlib.Path(f"/proc/{child}/comm").read_text().strip()


def wait_until(happened, program, what, limit_s=60):
    """Until `happened()`; an error if that takes too long or the program ends before."""
    deadline = time.monotonic() + limit_s
    while not happened():
        if program.ended():
            raise BenchError(f"{program.ending()} before {what}", program.name)
        if time.monotonic() > deadline:
            raise BenchError(f"not within {limit_s} s: {what}")
        time.sleep(0.01)


def wait_for_workers(program, name, count):
    """Until `count` children of the launcher run the program `name`."""
    wait_until(lambda: [child for _, child in children_of(program.pid)].count(name) >= count, program,
               f"{count} workers ran")

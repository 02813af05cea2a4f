"""What the parts of scripts/bench share: where things are, how a run is timed, what a process costs, a line of the table."""

import contextlib
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
DTRUN = ROOT / "build/release/bin/dtrun"


class BenchError(Exception):
    """Something that was to be measured did not run; the message says what and shows its output."""


def note(text):
    print(f"dtrun: bench: {text}", file=sys.stderr, flush=True)


def python_with_torch(asked_for):
    """The first of the interpreters that has PyTorch; None if there is none."""
    for python in [asked_for] if asked_for else ["/usr/bin/python3", sys.executable]:
        probe = [python, "-c", "import torch.distributed as d; raise SystemExit(not d.is_gloo_available())"]
        with contextlib.suppress(OSError):
            if subprocess.run(probe, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0:
                return python
    return None


def time_of(argv):
    """Wall seconds of one run; its output is shown only if it fails."""
    begin = time.perf_counter()
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=ROOT)
    seconds = time.perf_counter() - begin
    if done.returncode != 0:
        raise BenchError(f"{' '.join(map(str, argv))} ended with {done.returncode}:\n{done.stdout.decode(errors='replace')}")
    return seconds


def milliseconds(argv, repeats):
    time_of(argv)  # the page cache is warm from here on
    runs = [time_of(argv) * 1e3 for _ in range(repeats)]
    return {"median": statistics.median(runs), "min": min(runs), "max": max(runs), "runs": runs}


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


def wait_for_workers(pid, name, count, deadline_s=20):
    """Until `count` children of `pid` run the program `name`."""
    deadline = time.monotonic() + deadline_s
    while time.monotonic() < deadline:
        if [child_name for _, child_name in children_of(pid)].count(name) >= count:
            return
        time.sleep(0.01)
    raise BenchError(f"the launcher did not start {count} workers within {deadline_s} s")


def row(what, value, target="", met=None):
    verdict = "" if met is None else ("met" if met else "MISSED")
    return f"  {what:<52} {value:>16}   {target:<12} {verdict}".rstrip()

"""The part `peer` of scripts/bench: dtrun next to torchrun. Start to end of a trivial program, memory and CPU time of an
agent whose workers sleep, time from a worker's SIGKILL to its replacement, and from a node's death until the survivor
goes on. The same command line and the same programs for both; without PyTorch dtrun is measured alone."""

import contextlib
import os
import pathlib
import re
import signal
import socket
import statistics
import subprocess
import threading
import time
import uuid

from bench_common import DTRUN, ROOT, BenchError, children_of, cpu_seconds, milliseconds, note, python_with_torch, row, status_kb, wait_for_workers

WORKER = ROOT / "scripts/bench_peer_worker.py"
SAYS_IT_IS_UP = 'echo "up rank=$RANK world=$WORLD_SIZE"; exec sleep 600'
MARK = "DTRUN_BENCH_JOB"

TARGET_LAUNCH_RATIO = 40
TARGET_MEMORY_RATIO = 10
TARGET_RESTART_MS = 50
TARGET_SURVIVOR_MS = 1000


def launchers(python):
    """Name and command of each; torchrun 1.13 dies on Python 3.11 unless it is given maps for -r and -t."""
    yield "dtrun", [DTRUN]
    if python:
        yield "torchrun", [python, "-m", "torch.distributed.run", "-r", "9:1", "-t", "9:1"]


class Job:
    """A launcher and what its workers said, each line with the time of its arrival; ends with all it started."""

    def __init__(self, argv, python):
        self.mark = f"{MARK}={uuid.uuid4().hex}"
        environment = dict(os.environ, OMP_NUM_THREADS="1", PYTHON_EXEC=python or "python3")
        environment[MARK] = self.mark.split("=")[1]
        self.lines = []
        self.arrived = threading.Condition()
        self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        text=True, cwd=ROOT, env=environment)
        self.errors = []
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

    def wait_for_up(self, world, rank=None, after=0.0, limit_s=120):
        """When the first worker of such a world and rank said so, later than `after`."""
        pattern = re.compile(rf"up rank={'[0-9]+' if rank is None else rank} world={world}\b")

        def found():
            return next((at for at, line in self.lines if at > after and pattern.search(line)), None)

        with self.arrived:
            if not self.arrived.wait_for(found, timeout=limit_s):
                raise BenchError(f"no worker of a world of {world} came up within {limit_s} s:\n"
                                 f"{''.join(line for _, line in self.lines)}{''.join(self.errors)}")
            return found()

    def pids(self, *more):
        """Every process that this job started, the launcher included, whose environment also has `more`."""
        wanted = {entry.encode() for entry in (self.mark, *more)}
        for path in pathlib.Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if path.name.isdigit() and wanted <= set((path / "environ").read_bytes().split(b"\0")):
                    yield int(path.name)

    def kill_all(self):
        for pid in list(self.pids()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(5)
        self.kill_all()
        self.process.wait()
        for reader in self.readers:
            reader.join(5)


def measure_memory_and_cpu(command, seconds):
    """Of the launcher's own processes while two workers sleep."""
    argv = command + ["--standalone", "--nproc_per_node", "2", "--no_python", "sleep", "600"]
    with Job(argv, None) as job:
        agent = job.process.pid
        wait_for_workers(agent, "sleep", 2, deadline_s=60)
        time.sleep(1)
        own = [agent] + [pid for pid, name in children_of(agent) if name != "sleep"]
        before = sum(map(cpu_seconds, own))
        time.sleep(seconds)
        return {"rss_mb": sum(status_kb(pid, "VmRSS") for pid in own) / 1024, "processes": len(own),
                "cpu_seconds": sum(map(cpu_seconds, own)) - before, "seconds": seconds}


def measure_restart(command):
    """Milliseconds from SIGKILL of one of two workers to the first line of the one that replaces it."""
    argv = command + ["--standalone", "--nproc_per_node", "2", "--max_restarts", "1", "--no_python", "sh", "-c",
                      SAYS_IT_IS_UP]
    with Job(argv, None) as job:
        job.wait_for_up(world=2, rank=0)
        job.wait_for_up(world=2, rank=1)
        time.sleep(0.5)
        [pid] = job.pids("RANK=1")
        killed = time.perf_counter()
        os.kill(pid, signal.SIGKILL)
        return (job.wait_for_up(world=2, rank=1, after=killed) - killed) * 1e3


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until_listening(port, deadline_s=60):
    deadline = time.monotonic() + deadline_s
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port)).close()
            return
        time.sleep(0.01)
    raise BenchError(f"nobody listened on port {port} within {deadline_s} s")


def measure_survivor(command, python):
    """Milliseconds from the SIGKILL of all that runs on the second node until the first goes on alone."""
    port = free_port()
    argv = command + ["--nnodes", "1:2", "--nproc_per_node", "1", "--rdzv_backend", "c10d", "--rdzv_endpoint",
                      f"127.0.0.1:{port}", "--rdzv_id", "bench", "--max_restarts", "3", WORKER]
    with Job(argv, python) as first:
        wait_until_listening(port)
        with Job(argv, python) as second:
            first.wait_for_up(world=2)
            second.wait_for_up(world=2)
            time.sleep(0.5)
            killed = time.perf_counter()
            second.kill_all()
            return (first.wait_for_up(world=1, after=killed) - killed) * 1e3


def summary(runs):
    return {"median": statistics.median(runs), "min": min(runs), "max": max(runs), "runs": runs}


def measure_launcher(name, command, python, quick):
    idle_seconds = 3 if quick else 10
    quick = quick or name == "torchrun"  # seconds each, and far from any target
    trivial = command + ["--standalone", "--no_python", "--nproc_per_node"]
    result = {}
    for workers in (2, 8):
        note(f"peer: {name}, a trivial program on {workers} workers")
        result[f"true_{workers}_ms"] = milliseconds(trivial + [str(workers), "/bin/true"], 3 if quick else 20)
    note(f"peer: {name}, an agent with idle workers")
    result["agent"] = measure_memory_and_cpu(command, idle_seconds)
    note(f"peer: {name}, a worker's death")
    result["restart_ms"] = summary([measure_restart(command) for _ in range(2 if quick else 10)])
    note(f"peer: {name}, a node's death")
    result["survivor_ms"] = summary([measure_survivor(command, python) for _ in range(1 if quick else 5)])
    return result


def measure(options):
    python = python_with_torch(options.python)
    if python is None:
        note("no Python here has PyTorch with gloo, so dtrun is measured alone (scripts/setup --bench, or --python)")
    return {name: measure_launcher(name, command, python, options.quick) for name, command in launchers(python)}


def rows(result):
    dtrun, torchrun = result["dtrun"], result.get("torchrun")

    def pair(what, unit, digits, number, ratio_target=None, target=None):
        ours = number(dtrun)
        met = None if target is None else ours <= target
        yield row(what, f"{ours:.{digits}f} {unit}", f"<= {target} {unit}" if target else "", met)
        if torchrun:
            theirs = number(torchrun)
            met = None if ratio_target is None else theirs / ours >= ratio_target
            yield row("  torchrun", f"{theirs:,.{digits}f} {unit}")
            if theirs > 0:
                yield row("  ratio", f"{theirs / ours:.1f} ×", f">= {ratio_target} ×" if ratio_target else "", met)

    for workers in (2, 8):
        yield from pair(f"/bin/true on {workers} workers", "ms", 1, lambda r: r[f"true_{workers}_ms"]["median"],
                        ratio_target=TARGET_LAUNCH_RATIO)
    yield from pair("resident memory of an agent", "MiB", 1, lambda r: r["agent"]["rss_mb"],
                    ratio_target=TARGET_MEMORY_RATIO)
    yield from pair("CPU time of an agent per hour, workers idle", "s", 2,
                    lambda r: r["agent"]["cpu_seconds"] / r["agent"]["seconds"] * 3600)
    yield from pair("a worker's SIGKILL to its replacement's first line", "ms", 1, lambda r: r["restart_ms"]["median"],
                    target=TARGET_RESTART_MS)
    yield from pair("a node's death until the survivor goes on", "ms", 1, lambda r: r["survivor_ms"]["median"],
                    target=TARGET_SURVIVOR_MS)

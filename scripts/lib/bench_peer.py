"""The part `peer` of scripts/bench: dtrun next to torchrun. Start to end of a trivial program, memory and CPU time of an
agent whose workers sleep, time from a worker's SIGKILL to its replacement, and from a node's death until the survivor
goes on. The same command line and the same programs for both; without PyTorch dtrun is measured alone."""

import contextlib
import os
import random
import signal
import socket
import time
import uuid

from bench_common import (DTRUN, NO_TORCH, ROOT, attempt, error, failed, failed_row, python_with_torch, row, rows_of,
                          summary)
from bench_processes import Job, children_of, cpu_seconds, milliseconds, status_kb, wait_for_workers, wait_until

WORKER = ROOT / "scripts/lib/bench_peer_worker.py"
SAYS_IT_IS_UP = 'echo "up rank=$RANK world=$WORLD_SIZE"; exec sleep 600'

TARGET_LAUNCH_RATIO = 40
TARGET_MEMORY_RATIO = 10
TARGET_RESTART_MS = 50
TARGET_SURVIVOR_MS = 1000


def command_of_torchrun(python):
    """torchrun 1.13 dies on Python 3.11 unless it is given maps for -r and -t."""
    return [python, "-m", "torch.distributed.run", "-r", "9:1", "-t", "9:1"]


def job(argv, python=None):
    return Job(argv, {"OMP_NUM_THREADS": "1", "PYTHON_EXEC": python or "python3"})


def measure_memory_and_cpu(command, seconds):
    """Of the launcher's own processes while two workers sleep."""
    with job(command + ["--standalone", "--nproc_per_node", "2", "--no_python", "sleep", "600"]) as agent:
        wait_for_workers(agent, "sleep", 2)
        time.sleep(1)
        own = [agent.pid] + [pid for pid, name in children_of(agent.pid) if name != "sleep"]
        before = sum(map(cpu_seconds, own))
        time.sleep(seconds)
        return {"rss_mb": sum(status_kb(pid, "VmRSS") for pid in own) / 1024, "processes": len(own),
                "cpu_seconds": sum(map(cpu_seconds, own)) - before, "seconds": seconds}


def measure_restart(command):
    """Milliseconds from SIGKILL of one of two workers to the first line of the one that replaces it."""
    options = ["--standalone", "--nproc_per_node", "2", "--max_restarts", "1", "--no_python"]
    with job(command + options + ["sh", "-c", SAYS_IT_IS_UP]) as agent:
        agent.wait_for_up(world=2, rank=0)
        agent.wait_for_up(world=2, rank=1)
        time.sleep(0.5)
        [pid] = agent.pids("RANK=1")
        killed = time.perf_counter()
        os.kill(pid, signal.SIGKILL)
        return (agent.wait_for_up(world=2, rank=1, after=killed) - killed) * 1e3


def free_port():
    """One that was free a moment ago, and that the kernel gives to no connection: a store comes back to it."""
    while True:
        port = random.randint(15000, 32000)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port


def listens(port):
    with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", port)).close()
        return True
    return False


def measure_survivor(command, python):
    """Milliseconds from the SIGKILL of all that runs on the second node until the first goes on alone."""
    port = free_port()
    # The workers meet under the run's name, so each run has its own.
    argv = command + ["--nnodes", "1:2", "--nproc_per_node", "1", "--rdzv_backend", "c10d", "--rdzv_endpoint",
                      f"127.0.0.1:{port}", "--rdzv_id", f"bench-{uuid.uuid4().hex}", "--max_restarts", "3", WORKER]
    with job(argv, python) as first:
        wait_until(lambda: listens(port), first, f"it listened on port {port}")
        with job(argv, python) as second:
            first.wait_for_up(world=2)
            second.wait_for_up(world=2)
            time.sleep(0.5)
            killed = time.perf_counter()
            second.kill_all()
            return (first.wait_for_up(world=1, after=killed) - killed) * 1e3


def repeated(times, measure_once, *arguments):
    return summary([measure_once(*arguments) for _ in range(times)])


def measure_launcher(name, command, python, quick, results):
    idle_seconds = 3 if quick else 10
    quick = quick or name == "torchrun"  # seconds each, and far from any target
    trivial = command + ["--standalone", "--no_python", "--nproc_per_node"]
    for workers in (2, 8):
        results[f"true_{workers}_ms"] = attempt(f"peer: {name}, a trivial program on {workers} workers", milliseconds,
                                                trivial + [str(workers), "/bin/true"], 3 if quick else 20)
    results["agent"] = attempt(f"peer: {name}, an agent with idle workers", measure_memory_and_cpu, command, idle_seconds)
    results["restart_ms"] = attempt(f"peer: {name}, a worker's death", repeated, 2 if quick else 10, measure_restart,
                                    command)
    results["survivor_ms"] = attempt(f"peer: {name}, a node's death", repeated, 1 if quick else 5, measure_survivor,
                                     command, python)


def measure(options, results):
    python = python_with_torch(options.python)
    results["dtrun"] = {}
    measure_launcher("dtrun", [DTRUN], python, options.quick, results["dtrun"])
    results["torchrun"] = {} if python else error(NO_TORCH)
    if python:
        measure_launcher("torchrun", command_of_torchrun(python), python, options.quick, results["torchrun"])


class Compared:
    """The rows of one measurement: dtrun's number, torchrun's, and how many times dtrun's torchrun's is."""

    def __init__(self, key, what, unit, digits, number=lambda result: result["median"], target=None, ratio_target=None):
        self.key, self.what, self.unit, self.digits, self.number = key, what, unit, digits, number
        self.target, self.ratio_target = target, ratio_target

    def number_in(self, results):
        result = results.get(self.key)
        return None if result is None or failed(result) else self.number(result)

    def ours(self, result):
        number, target = self.number(result), self.target
        yield row(self.what, f"{number:.{self.digits}f} {self.unit}", f"<= {target} {self.unit}" if target else "",
                  number <= target if target else None)

    def theirs(self, result):
        yield row("  torchrun", f"{self.number(result):,.{self.digits}f} {self.unit}")

    def ratio(self, ours, theirs):
        target = self.ratio_target
        yield row("  ratio", f"{theirs / ours:.1f} ×", f">= {target} ×" if target else "",
                  theirs / ours >= target if target else None)

    def rows(self, dtrun, torchrun):
        yield from rows_of(dtrun.get(self.key), self.what, self.ours)
        if torchrun is None:
            return
        yield from rows_of(torchrun.get(self.key), "  torchrun", self.theirs)
        ours, theirs = self.number_in(dtrun), self.number_in(torchrun)
        if ours and theirs:
            yield from self.ratio(ours, theirs)


COMPARED = (
    Compared("true_2_ms", "/bin/true on 2 workers", "ms", 1, ratio_target=TARGET_LAUNCH_RATIO),
    Compared("true_8_ms", "/bin/true on 8 workers", "ms", 1, ratio_target=TARGET_LAUNCH_RATIO),
    Compared("agent", "resident memory of an agent", "MiB", 1, lambda agent: agent["rss_mb"],
             ratio_target=TARGET_MEMORY_RATIO),
    Compared("agent", "CPU time of an agent per hour, workers idle", "s", 2,
             lambda agent: agent["cpu_seconds"] / agent["seconds"] * 3600),
    Compared("restart_ms", "a worker's SIGKILL to its replacement's first line", "ms", 1, target=TARGET_RESTART_MS),
    Compared("survivor_ms", "a node's death until the survivor goes on", "ms", 1, target=TARGET_SURVIVOR_MS),
)


def rows(results):
    torchrun = results.get("torchrun")
    if failed(torchrun):
        yield failed_row("torchrun", torchrun)
        torchrun = None
    for compared in COMPARED:
        yield from compared.rows(results["dtrun"], torchrun)

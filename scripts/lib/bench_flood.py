"""The part `flood` of scripts/bench: a training job while unauthenticated peers flood its coordinator (tests/rendezvous/flood.h),
in an agent and as a `dtrun store`, next to the same job alone. The job has a key, and no unauthenticated peer has it."""

import contextlib
import json
import os
import pathlib
import subprocess
import tempfile
import time

from bench_common import DTRUN, ROOT, BenchError, attempt, row, rows_of
from bench_peer import free_port, listens
from bench_processes import Program, cpu_seconds, status_kb

CONFIG = ROOT / "configs/fashion_mnist_convnet.json"
CLIENT = ROOT / "build/release/bin/rendezvous_bench"
PROBE_STEPS, PROBE_WARMUP = 300, 100
FLOOD_AFTER_STEPS = 20  # when the flood begins
LIMIT_S = 3600
TARGET_SPEED = 0.95  # of the job alone; unauthenticated peers and job share this machine


def steps_of(folder):
    """(number, time) of each step in a metrics.jsonl, and the parameters' checksum once there is one."""
    steps, checksum = [], ""
    with contextlib.suppress(FileNotFoundError):
        for line in (folder / "metrics.jsonl").read_text().splitlines(keepends=True):
            event = json.loads(line) if line.endswith("\n") else {}
            if event.get("event") == "train":
                steps.append((event["step"], event["time"]))
            checksum = event.get("params_sha256", checksum)
    return steps, checksum


def is_done(folder):
    """Whether the job has written its checksum, which is in the last line."""
    with contextlib.suppress(OSError), (folder / "metrics.jsonl").open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - 4096))
        return b"params_sha256" in file.read()
    return False


def job(folder, steps, *options):
    return Program([DTRUN, "--nproc_per_node", "1", "--lanes", "1", *options, CONFIG, f"output_dir={folder}",
                    "train.eval_steps=0", "train.logging_steps=1", f"train.max_steps={steps}"], LIMIT_S,
                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def finished(program, folder):
    """Steps per second after the first ones, and the checksum. Raises BenchError if the job failed."""
    words = program.process.stderr.read()
    if program.process.wait() != 0:
        raise BenchError(f"the job ended with {program.process.returncode}", words)
    steps, checksum = steps_of(folder)
    return {"seconds": steps[-1][1] - steps[PROBE_WARMUP][1],
            "steps_per_second": (len(steps) - PROBE_WARMUP) / (steps[-1][1] - steps[PROBE_WARMUP][1]),
            "params_sha256": checksum}


def alone(folder, steps):
    with job(folder, steps, "--standalone") as program:
        return finished(program, folder)


def wait_for(what, true):
    end = time.monotonic() + 60
    while not true():
        if time.monotonic() > end:
            raise BenchError(f"{what}: not within 60 s")
        time.sleep(0.05)


def under_flood(folder, steps, store, limit):
    """The job with a coordinator of its own, or at a `dtrun store`, and as many unauthenticated peers as come until it has ended."""
    key, port = folder / "key", free_port()
    folder.mkdir()
    subprocess.run([DTRUN, "key", key], check=True, capture_output=True)
    with contextlib.ExitStack() as programs:
        if store:
            coordinator = programs.enter_context(Program([DTRUN, "store", "--bind", "127.0.0.1", "--port", str(port),
                                                          "--key_file", key], LIMIT_S, stdout=subprocess.DEVNULL))
            wait_for("a store", lambda: listens(port))
        training = programs.enter_context(job(folder / "out", steps, "--nnodes", "1", "--rdzv_endpoint",
                                              f"127.0.0.1:{port}", "--key_file", key))
        coordinator = coordinator if store else training
        wait_for("the job's first steps", lambda: len(steps_of(folder / "out")[0]) >= FLOOD_AFTER_STEPS)
        before = cpu_seconds(coordinator.pid)
        flood = programs.enter_context(Program([CLIENT, "flood", str(port), str(limit)], LIMIT_S,
                                               {"DTRUN_KEY": key.read_text().strip()}, stdin=subprocess.PIPE,
                                               stdout=subprocess.PIPE, text=True))
        memory = spent = 0
        while not is_done(folder / "out") and not training.ended():
            with contextlib.suppress(OSError, BenchError):  # it ends with the job
                memory = max(memory, status_kb(coordinator.pid, "VmRSS"))
                spent = cpu_seconds(coordinator.pid) - before
            time.sleep(0.5)
        flood.process.stdin.close()
        result = finished(training, folder / "out")
        words = flood.process.stdout.read()
    if not words:
        raise BenchError("the flood ended without an answer", flood.name)
    return {**result, **{f"flood_{name}": value for name, value in json.loads(words).items()},
            "coordinator_cpu_seconds": spent, "coordinator_rss_mb": memory / 1024}


def measure(options, results):
    with tempfile.TemporaryDirectory(prefix="dtrun-bench-", ignore_cleanup_errors=True) as scratch:
        folder = pathlib.Path(scratch)
        pace = alone(folder / "probe", PROBE_STEPS)["steps_per_second"]
        steps = PROBE_STEPS + int(pace * (5 if options.quick else options.flood_seconds))
        results["steps"] = steps
        results["alone"] = attempt("flood: the job alone", alone, folder / "alone", steps)
        for name, store in (("coordinator", False), ("store", True)):
            results[name] = attempt(f"flood: a flood against a {name}", under_flood, folder / name, steps, store,
                                    options.peers)


def compared(alone_, flood):
    same = flood["params_sha256"] == alone_["params_sha256"] != ""
    speed = flood["steps_per_second"] / alone_["steps_per_second"]
    yield row("  unauthenticated peers that were answered", flood["flood_answered"], "0", flood["flood_answered"] == 0)
    yield row("  the job's parameters", "the same" if same else "DIFFERENT", "the same", same)
    yield row("  the job's speed", f"{flood['steps_per_second']:.1f} steps/s", f">= {TARGET_SPEED} ×", speed >= TARGET_SPEED)
    yield row("  alone", f"{alone_['steps_per_second']:.1f} steps/s")
    yield row("  the coordinator's CPU time, memory", f"{flood['coordinator_cpu_seconds']:.1f} s, "
              f"{flood['coordinator_rss_mb']:.0f} MiB")


def rows(results):
    for name in ("coordinator", "store"):
        flood, alone_ = results.get(name), results.get("alone") or {"error": "the job alone was not measured"}
        what = f"a flood against a {name}"
        if flood and "error" not in flood:
            yield row(what, f"{flood['flood_peers']:,} peers", f"in {flood['flood_seconds']:.0f} s")
        yield from rows_of(alone_ if flood and "error" in alone_ else flood, what, lambda flood: compared(alone_, flood))

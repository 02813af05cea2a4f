"""Are the numbers right, and the same each time: the parts `tests`, `cudnn`, `determinism`, `repeats` and `sanitizer` of
scripts/bench_gpu."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import threading
import time

from bench_common import BenchError
from bench_gpu_checks import Skip, events, read_metrics
from bench_gpu_jobs import gpt2_jobs, last_hash, model_jobs, text_config
from bench_gpu_machine import need
from bench_gpu_trials import lines_of, run_trials, whole_or_fail, write_jobs
from bench_processes import processes_with

GPU_TESTS = "tests/gpu_device_tests"
CUDNN_TESTS = "tests/worker_device_cuda_cudnn_on_gpu_test"
TOPICS = ("arithmetic", "lane", "attention", "cross_entropy", "columns", "elementwise", "embedding", "images", "norm", "vector")
SHARED_MEMORY_TOPICS = ("attention", "cross_entropy", "columns", "norm")  # kernels whose threads meet in it
REPETITIONS = 50


def summary_of_tests(out):
    found = re.search(r"test cases: +(\d+) \| +(\d+) passed", out)
    if not found or found.group(1) == "0":
        raise BenchError("no test ran", out)
    return f"{found.group(2)} cases", {"cases": int(found.group(2))}


def tests(bench):
    for topic in TOPICS:
        arguments = [GPU_TESTS, f"--source-file=*/{topic}_test.cc"]
        bench.check(topic, lambda arguments=arguments: summary_of_tests(bench.program(arguments, 60)))


def sanitizer(bench):
    def sanitized(tool, topic):
        need("compute-sanitizer")
        program = bench.build / GPU_TESTS
        out = bench.command(["compute-sanitizer", "--tool", tool, "--error-exitcode", "9", program,
                             f"--source-file=*/{topic}_test.cc"], 90, bench.environment())
        return summary_of_tests(out)

    for topic in SHARED_MEMORY_TOPICS[:1] if bench.quick else SHARED_MEMORY_TOPICS:
        bench.check(f"racecheck, {topic}", sanitized, "racecheck", topic)
    for topic in ("vector",) if bench.quick else ("lane", "vector", "embedding", "images"):
        bench.check(f"memcheck, {topic}", sanitized, "memcheck", topic)


def cudnn(bench):
    bench.check("plans against references", lambda: summary_of_tests(bench.program([CUDNN_TESTS], 90)))


def trained(metrics):
    found = last_hash(metrics)
    return f"params_sha256 {found[:12]}", {"params_sha256": found}


def compared(metrics, first):
    """Of what check() gave for the first run."""
    if first is None:
        raise Skip("there is nothing to compare with")
    found, wanted = last_hash(metrics), first["params_sha256"]
    if found != wanted:
        raise BenchError(f"params_sha256 is {found[:12]}, not {wanted[:12]}")
    return "the same"


def determinism(bench, device="cuda"):
    steps = 32 if bench.sizes == "tiny" else 600
    for bf16 in (False, True):
        what = "bf16" if bf16 else "fp32"
        config = text_config(bench, device, bf16, steps)
        first = bench.check(f"{what}, a run", lambda config=config: trained(bench.train(config, 90)))

        def again(environment, first=first, config=config):
            if first is None:
                raise Skip("there is nothing to compare with")
            return compared(bench.train(config, 90, environment), first)

        bench.check(f"{what}, again", again, {})
        bench.check(f"{what}, each launch waited for", again, {"CUDA_LAUNCH_BLOCKING": "1", "DTRUN_TEST_CUDA_GRAPHS": "0"})
        bench.check(f"{what}, kernel by kernel", again, {"DTRUN_TEST_CUDA_GRAPHS": "0"})
        bench.check(f"{what}, after kill -9", lambda first=first, config=config: after_kill(bench, config, first))


def after_kill(bench, config, first):
    """Kills the worker in the middle of the run; dtrun starts another one, which goes on from a checkpoint."""
    if first is None:
        raise Skip("there is nothing to compare with")
    steps = config["train"]["max_steps"]
    job = bench.job({**config, "train": {**config["train"], "save_steps": steps // 8}})
    output, killed = job.parent, []

    def kill():
        deadline, workers = time.monotonic() + 60, []
        while time.monotonic() < deadline and not ended.wait(0.005):
            workers = workers or list(workers_of(output))  # takes longer than some steps
            if workers and any(line["event"] == "train" and line["step"] >= steps // 4 for line in complete_metrics(output)):
                for pid in workers:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                        killed.append(pid)
                return

    ended = threading.Event()
    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    try:
        bench.program(["bin/dtrun", "--standalone", "--nproc_per_node", "1", "--max_restarts", "1", str(job)], 120,
                      {"DTRUN_BENCH_RUN": str(output)})
    finally:
        ended.set()
        killer.join()
    metrics = bench.metrics(output)
    shutil.rmtree(output, ignore_errors=True)
    if not killed or len({line["generation"] for line in events(metrics, "start")}) < 2:
        raise BenchError("the worker was gone before it could be killed")
    return f"{compared(metrics, first)}, killed after step {steps // 4} or later"


def complete_metrics(output):
    """While it is written its last line may be half there."""
    try:
        return read_metrics(output)
    except ValueError:
        return []


def workers_of(output):
    for pid in processes_with(f"DTRUN_BENCH_RUN={output}"):
        try:
            if pathlib.Path(f"/proc/{pid}/comm").read_text().strip() == "dtrun-worker":
                yield pid
        except OSError:
            pass


def repeats(bench):
    """Each kind of work by itself, and whole microbatches while another stream keeps the GPU busy."""
    tiny = bench.sizes == "tiny"
    jobs = {**gpt2_jobs(bench), **({} if bench.batches else model_jobs(bench))}
    times = 3 if tiny or bench.quick else REPETITIONS
    ending = run_trials(bench, "repeats", write_jobs(bench, jobs), ["--times", times] + (["--busy", 4096] if tiny else []), jobs)
    for name in jobs:
        for kind in ("matmul", "addition", "attention", "convolution", "microbatch"):
            found = [line for line in lines_of(ending, name, jobs) if line.get("kind") == kind]
            if found:
                bench.check(f"{name}, {PLURALS[kind]}", repeated, found)
    whole_or_fail(bench, ending)


PLURALS = {"matmul": "matmuls", "addition": "additions in matmuls", "attention": "attention", "convolution": "convolutions",
           "microbatch": "a microbatch's gradient"}


def repeated(lines):
    """One row of what was repeated; fails if anything had other bits."""
    done = [line for line in lines if "skipped" not in line]
    hashes = {f"{line['what']}{', ' + line['by'] if 'by' in line else ''}": line["hash"] for line in done}
    bad = [line for line in done if line["others"]]
    if bad:
        worst = max(bad, key=lambda line: line["others"])
        raise BenchError(f"{len(bad)} of {len(done)} have other bits at times: {worst['what']}, {worst['others']} of "
                         f"{worst['times']} times", "\n".join(map(json.dumps, bad)))
    if not done:
        raise Skip(lines[0]["skipped"])
    by = sorted({line["by"] for line in done if "by" in line})
    text = f"{len(done)}, each {done[0]['times']} times, one hash each" if done[0]["kind"] != "addition" else (
        f"{len(done)}: adding in the matmul has the bits of adding afterwards")
    if by:
        text += f", by {' and '.join(by)}"
    if len(done) < len(lines):
        text += f"; {len(lines) - len(done)} skipped: {next(line['skipped'] for line in lines if 'skipped' in line)}"
    return text, {"tried": len(done), "skipped": len(lines) - len(done), "times": done[0]["times"], **hashes}

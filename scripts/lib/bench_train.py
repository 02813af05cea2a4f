"""The part `train` of scripts/bench: samples per second of the convnet on 2 workers, dtrun and PyTorch's
DistributedDataParallel in turn, and where a step's time goes."""

import json
import pathlib
import statistics
import tempfile

from bench_common import DTRUN, NO_TORCH, ROOT, BenchError, attempt, error, failed, python_with_torch, row, rows_of
from bench_processes import run

CONFIG = ROOT / "configs/fashion_mnist_convnet.json"
TORCH_SCRIPT = ROOT / "scripts/lib/bench_torch_ddp.py"
RUN_LIMIT_S = 900

WORKERS = 2
SAMPLES_PER_WORKER = 64
WARMUP_STEPS = 50  # caches, buffers and connections are warm after them; not measured
LOGGING_STEPS = 50
SHARES = {"math": "math", "wait_gradients": "waiting for gradients", "wait_data": "reading data",
          "other": "everything else"}
MEASURED_SHARES = [share for share in SHARES if share != "math"]

TARGET_RATIO = 4.5


def read_train_events(path):
    events = [json.loads(line) for line in path.read_text().splitlines()]
    return [event for event in events if event["event"] == "train" and event["step"] > WARMUP_STEPS]


def train_with_dtrun(steps, scratch):
    output = pathlib.Path(tempfile.mkdtemp(dir=scratch)) / "run"
    run([
        DTRUN, "--standalone", "--nproc_per_node", str(WORKERS), "--lanes", "1", CONFIG,
        f"output_dir={output}", f"train.max_steps={steps}",
        f"train.global_batch_size={WORKERS * SAMPLES_PER_WORKER}", f"train.logging_steps={LOGGING_STEPS}",
        "train.eval_steps=0", "train.save_steps=0",
    ], RUN_LIMIT_S)
    events = read_train_events(output / "metrics.jsonl")
    if not events:
        raise BenchError(f"metrics.jsonl has no training step after step {WARMUP_STEPS}")
    rates = [event["samples_per_second"] for event in events]
    return {
        "samples_per_second": statistics.harmonic_mean(rates),  # the same samples in each interval
        "best_interval": max(rates),
        "median_interval": statistics.median(rates),
        "loss": events[-1]["loss"],
        "shares": {share: statistics.mean(event[share] for event in events) for share in MEASURED_SHARES},
    }


def train_with_torch(python, steps, dataloader):
    argv = [python, TORCH_SCRIPT, "--workers", str(WORKERS), "--batch-per-worker", str(SAMPLES_PER_WORKER),
            "--steps", str(steps), "--warmup-steps", str(WARMUP_STEPS), "--interval", str(LOGGING_STEPS)]
    _, out = run(argv + (["--dataloader"] if dataloader else []), RUN_LIMIT_S)
    return json.loads(out.splitlines()[-1])


def take_turns(rounds, programs, results):
    """A round runs each program once. One that failed is not run again."""
    for number in range(1, rounds + 1):
        for program, train in programs.items():
            if failed(results.get(program)):
                continue
            run_of_it = attempt(f"train, round {number} of {rounds}: {program}", train)
            if failed(run_of_it):
                results[program] = run_of_it
            else:
                results["runs"][program].append(run_of_it)


def measure(options, results):
    rounds, steps = (1, 300) if options.quick else (3, 1500)
    results.update(workers=WORKERS, samples_per_worker=SAMPLES_PER_WORKER, steps=steps,
                   torch_dataloader=options.dataloader, runs={"dtrun": [], "torch": []})
    python = python_with_torch(options.python)
    if python is None:
        results["torch"] = error(NO_TORCH)
    with tempfile.TemporaryDirectory(prefix="dtrun-bench-", ignore_cleanup_errors=True) as scratch:
        programs = {"dtrun": lambda: train_with_dtrun(steps, scratch),
                    "torch": lambda: train_with_torch(python, steps, options.dataloader)}
        try:
            take_turns(rounds, programs, results)
        finally:  # Ctrl-C: the rounds before it count
            summarise(results)


def summarise(results):
    """Medians of the programs that ran and did not fail."""
    runs = {program: runs for program, runs in results["runs"].items() if runs and not failed(results.get(program))}
    for program, its_runs in runs.items():
        results[f"{program}_samples_per_second"] = statistics.median(run["samples_per_second"] for run in its_runs)
    if "dtrun" in runs:
        shares = {share: statistics.median(run["shares"][share] for run in runs["dtrun"]) for share in MEASURED_SHARES}
        results["shares"] = {**shares, "math": 1 - sum(shares.values())}
        results["step_ms"] = WORKERS * SAMPLES_PER_WORKER / results["dtrun_samples_per_second"] * 1e3
    if len(runs) == 2:
        results["ratio"] = results["dtrun_samples_per_second"] / results["torch_samples_per_second"]


def rows(results):
    def rate(program, what):
        outcome = results.get(program) or results.get(f"{program}_samples_per_second")
        return rows_of(outcome, what, lambda rate: [row(what, f"{rate:,.0f} /s")])

    torch_runs = results["runs"]["torch"]
    version = f" {torch_runs[0]['torch']}" if torch_runs else ""
    yield from rate("dtrun", f"dtrun, {WORKERS} workers × 1 lane × {SAMPLES_PER_WORKER} samples")
    yield from rate("torch", f"PyTorch{version} DDP, gloo, {WORKERS} × {SAMPLES_PER_WORKER} samples")
    if "ratio" in results:
        yield row("  ratio of the medians", f"{results['ratio']:.2f} ×", f">= {TARGET_RATIO} ×",
                  results["ratio"] >= TARGET_RATIO)
    if "step_ms" in results:
        yield row("a step of dtrun", f"{results['step_ms']:.2f} ms")
        for share, what in SHARES.items():
            yield row(f"  {what}", f"{results['shares'][share] * 100:.1f} %")

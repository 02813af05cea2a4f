"""The part `models` of scripts/bench: tokens per second of a small GPT-2 and samples per second of an MLP on 2 workers,
beside the best that PyTorch does on as many cores: one process with two threads, or DistributedDataParallel; eager or
compiled."""

import json
import pathlib
import statistics
import tempfile

from bench_common import DTRUN, NO_TORCH, ROOT, BenchError, attempt, error, failed, python_with_torch, row, rows_of
from bench_processes import run

TORCH_SCRIPT = ROOT / "scripts/bench_torch_models.py"
RUN_LIMIT_S = 600
WORKERS = 2
TARGET_RATIO = 1.5
LENGTH = 128  # tokens of a sample
TEXT = {"type": "text", "path": str(ROOT / "docs"), "files": "*.md", "sequence_length": LENGTH, "test_fraction": 0.01}
IMAGES = {"type": "synthetic", "samples": 20000, "shape": [1, 28, 28]}

# As bench_torch_models.py has them.
MODELS = {
    "gpt2": {"what": "GPT-2, 4 layers of 256, 128 tokens", "unit": "tokens/s", "per_sample": LENGTH, "batch": 32, "steps": 60,
             "model": {"type": "gpt2", "n_layer": 4, "n_head": 4, "n_embd": 256, "n_positions": LENGTH}, "data": TEXT,
             "train": {"optim": "adamw", "learning_rate": 1e-3, "max_grad_norm": 1.0, "micro_batch_size": 8}},
    "mlp": {"what": "MLP, 784-512-512-10", "unit": "samples/s", "per_sample": 1, "batch": 256, "steps": 1500,
            "model": {"type": "mlp", "hidden_sizes": [512, 512]}, "data": IMAGES,
            "train": {"optim": "sgd", "learning_rate": 0.01, "momentum": 0.9, "micro_batch_size": 64}},
}
PEERS = {"one process, 2 threads": ["--threads", "2"],
         "DDP, 2 workers": ["--workers", "2"],
         "one process, 2 threads, compiled": ["--threads", "2", "--compile"]}


def train_with_dtrun(model, steps, scratch):
    folder = pathlib.Path(tempfile.mkdtemp(dir=scratch))
    config = {"output_dir": str(folder / "run"), "model": model["model"], "data": model["data"],
              "train": {**model["train"], "global_batch_size": model["batch"], "max_steps": steps, "save_steps": 0,
                        "eval_steps": 0, "logging_steps": max(1, steps // 6)}}
    (folder / "job.json").write_text(json.dumps(config))
    run([DTRUN, "--standalone", "--nproc_per_node", str(WORKERS), "--lanes", "1", folder / "job.json"], RUN_LIMIT_S)
    events = [json.loads(line) for line in (folder / "run/metrics.jsonl").read_text().splitlines()]
    rates = [event["samples_per_second"] for event in events if event["event"] == "train"][1:]  # the first warms up
    if not rates:
        raise BenchError("metrics.jsonl has too few lines of training")
    return statistics.harmonic_mean(rates) * model["per_sample"]


def train_with_torch(python, name, steps, options):
    model = MODELS[name]
    _, out = run([python, TORCH_SCRIPT, name, "--batch", str(model["batch"]), "--steps", str(steps), *options], RUN_LIMIT_S)
    return json.loads(out.splitlines()[-1])["samples_per_second"] * model["per_sample"]


def measure(options, results):
    python = python_with_torch(options.python)
    with tempfile.TemporaryDirectory(prefix="dtrun-bench-", ignore_cleanup_errors=True) as scratch:
        for name, model in MODELS.items():
            steps = model["steps"] // (4 if options.quick else 1)
            result = results[name] = {"dtrun": [], "torch": {}}
            # dtrun before and after its peers, so that a machine that slows down slows both.
            result["dtrun"].append(attempt(f"models: dtrun, {name}", train_with_dtrun, model, steps, scratch))
            if python is None:
                result["torch"] = error(NO_TORCH)
            else:
                for peer, words in PEERS.items():
                    result["torch"][peer] = attempt(f"models: PyTorch, {name}, {peer}", train_with_torch, python, name,
                                                    steps, words)
            result["dtrun"].append(attempt(f"models: dtrun, {name}, again", train_with_dtrun, model, steps, scratch))


def rows(results):
    for name, result in results.items():
        model = MODELS[name]
        runs = result["dtrun"]
        broken = next((one for one in runs if failed(one)), None)
        ours = broken or (statistics.mean(runs) if runs else None)
        yield from rows_of(ours, f"dtrun, {model['what']}",
                           lambda rate: [row(f"dtrun, {model['what']}", f"{rate:,.0f} {model['unit']}")])
        peers = {} if failed(result["torch"]) else result["torch"]
        if failed(result["torch"]):
            yield from rows_of(result["torch"], "  PyTorch", None)
        for peer, rate in peers.items():
            yield from rows_of(rate, f"  PyTorch, {peer}", lambda rate: [row(f"  PyTorch, {peer}", f"{rate:,.0f} {model['unit']}")])
        best = max((rate for rate in peers.values() if not failed(rate)), default=None)
        if best and isinstance(ours, float):
            yield row("  ratio to PyTorch's best", f"{ours / best:.2f} ×", f">= {TARGET_RATIO} ×", ours / best >= TARGET_RATIO)

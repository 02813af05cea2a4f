"""The part `models` of scripts/bench: how long two workers take to exchange 25 MB; tokens per second of a small GPT-2 and
samples per second of an MLP and of a ResNet on two cores, in fp32 and in bf16, as two workers and as one with two lanes,
beside the best that PyTorch does on as many: one process with two threads, or DistributedDataParallel; eager or compiled."""

import json
import pathlib
import statistics
import tempfile

from bench_common import DTRUN, NO_TORCH, ROOT, BenchError, attempt, error, failed, note, python_with_torch, row, rows_of
from bench_processes import run

EXCHANGE = ROOT / "build/release/bin/exchange_bench"
TORCH_SCRIPT = ROOT / "scripts/lib/bench_torch_models.py"
RUN_LIMIT_S = 600
TARGET_RATIO = {"gpt2": {"fp32": 1.35, "bf16": 1.8}, "mlp": {"fp32": 1.2, "bf16": 1.4},
                "resnet": {"fp32": 1.2, "bf16": 1.2}}
NO_BF16 = "the processor has no AVX512_BF16"
LENGTH = 128  # tokens of a sample
TEXT = {"type": "text", "path": str(ROOT / "docs"), "files": "*.md", "sequence_length": LENGTH, "test_fraction": 0.01}
IMAGES = {"type": "fashion_mnist", "path": "/usr/share/datasets/fashion-mnist"}
COLOURS = {"type": "synthetic", "samples": 2000, "shape": [3, 32, 32]}

# As bench_torch_models.py has them.
MODELS = {
    "gpt2": {"what": "GPT-2, 4 layers of 256, 128 tokens", "unit": "tokens/s", "per_sample": LENGTH, "batch": 32, "steps": 60,
             "model": {"type": "gpt2", "n_layer": 4, "n_head": 4, "n_embd": 256, "n_positions": LENGTH}, "data": TEXT,
             "train": {"optim": "adamw", "learning_rate": 1e-3, "max_grad_norm": 1.0, "micro_batch_size": 8}},
    "mlp": {"what": "MLP, 784-512-512-10", "unit": "samples/s", "per_sample": 1, "batch": 256, "steps": 1500,
            "model": {"type": "mlp", "hidden_sizes": [512, 512]}, "data": IMAGES,
            "train": {"optim": "sgd", "learning_rate": 0.01, "momentum": 0.9, "micro_batch_size": 128}},
    "resnet": {"what": "ResNet-18, images of 32x32", "unit": "samples/s", "per_sample": 1, "batch": 64, "steps": 24,
               "model": {"type": "resnet", "stem": "cifar"}, "data": COLOURS,
               "train": {"optim": "sgd", "learning_rate": 0.01, "momentum": 0.9, "micro_batch_size": 32}},
}
FORMATS = ("fp32", "bf16")
WAYS = {"2 workers": ["--nproc_per_node", "2", "--lanes", "1"],
        "1 worker, 2 lanes": ["--nproc_per_node", "1", "--lanes", "2"]}
PEERS = {"one process, 2 threads": ["--threads", "2"],
         "DDP, 2 workers": ["--workers", "2"],
         "one process, 2 threads, compiled": ["--threads", "2", "--compile"]}


def processor_has_bf16():
    return "avx512_bf16" in pathlib.Path("/proc/cpuinfo").read_text()


def exchange():
    _, out = run([EXCHANGE, "25", "2"], RUN_LIMIT_S)
    return json.loads(out)


def train_with_dtrun(model, number_format, way, steps, scratch):
    folder = pathlib.Path(tempfile.mkdtemp(dir=scratch))
    config = {"output_dir": str(folder / "run"), "model": model["model"], "data": model["data"],
              "train": {**model["train"], "bf16": number_format == "bf16", "global_batch_size": model["batch"],
                        "max_steps": steps, "save_steps": 0, "eval_steps": 0, "logging_steps": max(1, steps // 6)}}
    (folder / "job.json").write_text(json.dumps(config))
    run([DTRUN, "--standalone", *WAYS[way], folder / "job.json"], RUN_LIMIT_S)
    events = [json.loads(line) for line in (folder / "run/metrics.jsonl").read_text().splitlines()]
    rates = [event["samples_per_second"] for event in events if event["event"] == "train"][1:]  # the first warms up
    if not rates:
        raise BenchError("metrics.jsonl has too few lines of training")
    return statistics.harmonic_mean(rates) * model["per_sample"]


def train_with_torch(python, name, number_format, steps, options):
    model = MODELS[name]
    options = [*options, "--bf16"] if number_format == "bf16" else options
    _, out = run([python, TORCH_SCRIPT, name, "--batch", str(model["batch"]), "--steps", str(steps), *options], RUN_LIMIT_S)
    return json.loads(out.splitlines()[-1])["samples_per_second"] * model["per_sample"]


def measure(options, results):
    python = python_with_torch(options.python)
    results["exchange"] = attempt("models: 25 MB between two workers", exchange)
    results["training"] = {}
    with tempfile.TemporaryDirectory(prefix="dtrun-bench-", ignore_cleanup_errors=True) as scratch:
        for name in MODELS:
            for number_format in FORMATS:
                result = results["training"][f"{name}, {number_format}"] = {"model": name, "format": number_format}
                measure_training(result, python, MODELS[name]["steps"] // (4 if options.quick else 1), scratch)


def measure_training(result, python, steps, scratch):
    name, number_format = result["model"], result["format"]
    result.update(dtrun={way: [] for way in WAYS}, torch={})
    if number_format == "bf16" and not processor_has_bf16():
        result["skipped"] = NO_BF16
        note(f"models: {name}, {number_format} skipped: {NO_BF16}")
        return

    def ours(again):
        for way in WAYS:
            result["dtrun"][way].append(attempt(f"models: dtrun, {name}, {number_format}, {way}{again}", train_with_dtrun,
                                                MODELS[name], number_format, way, steps, scratch))

    # dtrun before and after its peers, so that a machine that slows down slows both.
    ours("")
    if python is None:
        result["torch"] = error(NO_TORCH)
    else:
        for peer, words in PEERS.items():
            result["torch"][peer] = attempt(f"models: PyTorch, {name}, {number_format}, {peer}", train_with_torch, python, name,
                                            number_format, steps, words)
    ours(", again")


def best_of(rates):
    """The highest rate; None if none was measured."""
    return max((rate for rate in rates if not failed(rate)), default=None)


def own_rates(result):
    """The mean of dtrun's runs by way; an error if one of them failed. Ctrl-C may have left some out."""
    return {way: next((one for one in runs if failed(one)), None) or statistics.mean(runs)
            for way, runs in result["dtrun"].items() if runs}


def exchange_rows(times):
    ratio = times["memory_ms"] / times["messages_ms"]
    return [row("25 MB between two workers, through memory", f"{times['memory_ms']:.1f} ms"),
            row("  by messages, as between hosts", f"{times['messages_ms']:.1f} ms"),
            row("  memory, ratio to messages", f"{ratio:.2f} ×", "<= 1 ×", ratio <= 1)]


def training_rows(result, fp32):
    model, number_format = MODELS[result["model"]], result["format"]
    what = f"dtrun, {model['what']}, {number_format}"
    if "skipped" in result:
        yield row(what, "skipped", result["skipped"])
        return

    def rate_row(what, rate):
        return rows_of(rate, what, lambda rate: [row(what, f"{rate:,.0f} {model['unit']}")])

    ours = own_rates(result)
    for way, rate in ours.items():
        yield from rate_row(f"{what}, {way}", rate)
    peers = {} if failed(result["torch"]) else result["torch"]
    if failed(result["torch"]):
        yield from rows_of(result["torch"], "  PyTorch", None)
    for peer, rate in peers.items():
        yield from rate_row(f"  PyTorch, {peer}", rate)
    best, target = best_of(peers.values()), TARGET_RATIO[result["model"]][number_format]
    for way, rate in ours.items():
        if best and not failed(rate):
            yield row(f"  ratio to PyTorch's best, {way}", f"{rate / best:.2f} ×", f">= {target} ×", rate / best >= target)
    mine, slower = best_of(ours.values()), best_of(own_rates(fp32).values())
    if number_format == "bf16" and mine and slower:
        yield row("  ratio to dtrun's fp32", f"{mine / slower:.2f} ×", "> 1 ×", mine > slower)


def rows(results):
    if "exchange" in results:
        yield from rows_of(results["exchange"], "25 MB between two workers", exchange_rows)
    training = results.get("training", {})
    for result in training.values():
        yield from training_rows(result, training[f"{result['model']}, fp32"])

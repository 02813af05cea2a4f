"""The jobs that the parts of scripts/bench_gpu train, and what their metrics say."""

import array
import itertools
import random
import re
import statistics

from bench_common import BenchError
from bench_gpu_checks import events

# Dense, of tensor cores for bf16 and outside them for fp32; in FLOP per second, from the makers' data sheets.
PEAKS = {"H200": {"bf16": 989e12, "fp32": 67e12}, "H100": {"bf16": 989e12, "fp32": 67e12},
         "A100": {"bf16": 312e12, "fp32": 19.5e12}, "B200": {"bf16": 2250e12, "fp32": 75e12}}
# GPT-2 124M of 1024 tokens. Its vocabulary is what the data's different tokens are rounded up to: PyTorch is slow with one of an
# odd size, and both are to train the same model. Steps take an H100 some seconds, since its clock follows the power that it
# takes. For tests without a GPU, whose numbers mean nothing: a model that a processor trains.
SIZES = {"full": {"layers": 12, "heads": 12, "width": 768, "length": 1024, "tokens": 4 << 20, "different": 50257,
                  "vocabulary": 50304, "batches": (64, 16, 4, 32, 8),
                  "steps": {64: 80, 32: 120, 16: 160, 8: 240, 4: 320}},
         "tiny": {"layers": 1, "heads": 2, "width": 16, "length": 16, "tokens": 1 << 14, "different": 97, "vocabulary": 128,
                  "batches": (4, 2), "steps": {4: 6, 2: 6}}}
VALIDATION_SAMPLES = 64
REPEATED_SAMPLES = 8
MODELS = {"full": {"mlp": {"model": {"type": "mlp", "hidden_sizes": [512, 512]}, "batch": 256, "steps": 2000,
                           "formats": ("fp32", "bf16")},
                   "convnet": {"model": {"type": "convnet"}, "batch": 128, "steps": 2000, "formats": ("fp32",)}},
          "tiny": {"mlp": {"model": {"type": "mlp", "hidden_sizes": [16]}, "batch": 4, "steps": 6, "formats": ("fp32", "bf16")},
                   "convnet": {"model": {"type": "convnet", "channels": [3]}, "batch": 4, "steps": 6, "formats": ("fp32",)}}}


def text_config(bench, device, bf16, steps):
    """A small GPT-2 with dropout, on any bytes, in steps of 2 microbatches."""
    text = bench.scratch / "text"
    if not text.exists():
        text.write_bytes(bytes(random.Random(1).choices(range(32, 127), k=1 << 18)))
    # Up to 9.15 cuDNN's attention wants a number of positions that 128 divides.
    model = {"type": "gpt2", "n_layer": 2, "n_head": 4, "n_embd": 128, "n_positions": 128, "dropout": 0.1}
    if bench.sizes == "tiny":
        model.update(n_layer=1, n_embd=32, n_positions=16)
    return {"device": device, "model": model,
            "data": {"type": "text", "path": str(text), "sequence_length": model["n_positions"], "test_fraction": 0.01},
            "train": {"max_steps": steps, "global_batch_size": 8, "micro_batch_size": 4, "optim": "adamw", "learning_rate": 1e-3,
                      "max_grad_norm": 1.0, "bf16": bf16, "logging_steps": 1, "eval_steps": 0, "save_steps": 0}}


def tokens(bench):
    """A file of random tokens, those that are rare in text about as rare here (Zipf): the gradient of an embedding takes as
    long as its most frequent token."""
    folder = bench.scratch / "tokens"
    if not folder.exists():
        folder.mkdir()
        sizes, chosen = SIZES[bench.sizes], random.Random(1)
        count = min(1 << 18, sizes["tokens"])
        so_far = list(itertools.accumulate(1 / rank for rank in range(1, sizes["different"] + 1)))
        block = array.array("H", chosen.choices(range(sizes["different"]), cum_weights=so_far, k=count))
        with open(folder / "train.bin", "wb") as file:
            for _ in range(sizes["tokens"] // count):
                block.tofile(file)
        with open(folder / "val.bin", "wb") as file:  # evaluated at the end
            block[:VALIDATION_SAMPLES * sizes["length"] + 1].tofile(file)
    return folder


def repeating_tokens(bench):
    """A file whose samples are all alike, whichever of them a step takes."""
    folder = bench.scratch / "repeating"
    if not folder.exists():
        folder.mkdir()
        sizes, chosen = SIZES[bench.sizes], random.Random(2)
        sample = array.array("H", (chosen.randrange(sizes["different"]) for _ in range(sizes["length"])))
        for name in ("train.bin", "val.bin"):
            with open(folder / name, "wb") as file:
                (sample * REPEATED_SAMPLES + sample[:1]).tofile(file)
    return folder


def gpt2_config(bench, batch, bf16, steps):
    sizes = SIZES[bench.sizes]
    return {"device": "cuda",
            "model": {"type": "gpt2", "n_layer": sizes["layers"], "n_head": sizes["heads"], "n_embd": sizes["width"],
                      "n_positions": sizes["length"], "vocab_size": sizes["vocabulary"], "dropout": 0.0},
            "data": {"type": "tokens", "path": str(tokens(bench)), "sequence_length": sizes["length"],
                     "vocab_size": sizes["different"]},
            "train": {"max_steps": steps, "global_batch_size": batch, "micro_batch_size": batch, "optim": "adamw",
                      "learning_rate": 1e-4, "weight_decay": 0.1, "max_grad_norm": 1.0, "bf16": bf16,
                      "logging_steps": max(1, steps // 6), "eval_steps": 0, "save_steps": 0}}


def model_config(model, bf16, steps):
    return {"device": "cuda", "model": model["model"],
            "data": {"type": "synthetic", "samples": 20000, "shape": [1, 28, 28], "classes": 10},
            "train": {"max_steps": steps, "global_batch_size": model["batch"], "micro_batch_size": model["batch"],
                      "optim": "sgd", "learning_rate": 0.01, "momentum": 0.9, "bf16": bf16, "logging_steps": max(1, steps // 6),
                      "eval_steps": 0, "save_steps": 0}}


def model_jobs(bench):
    """The others, {name: (no micro batch size of --batches, config)}."""
    return {f"{name} {number_format}": (None, model_config(model, number_format == "bf16", 6))
            for name, model in MODELS[bench.sizes].items() for number_format in model["formats"]}


def gpt2_jobs(bench):
    return {gpt2_name(bench, batch): (batch, gpt2_config(bench, batch, True, 6)) for batch in bf16_batches(bench)}


def gpt2_name(bench, batch):
    return f"{'GPT-2 124M' if bench.sizes == 'full' else 'a tiny GPT-2'}, B={batch} bf16"


def bf16_batches(bench):
    """Micro batch sizes that trials are made with: what matters most comes first, since time may run out."""
    return [batch for batch in bench.batches or SIZES[bench.sizes]["batches"][:3]][:1 if bench.quick else None]


def small_batch(bench):
    """For what is told of the host, or of each kernel: a step is short."""
    return SIZES[bench.sizes]["batches"][-1 if bench.sizes == "tiny" else 2]


def gpt2_steps(bench, batch):
    return SIZES[bench.sizes]["steps"].get(batch, 80)


def last_hash(metrics):
    if not events(metrics, "end"):
        raise BenchError("metrics.jsonl has no end")
    return events(metrics, "end")[-1]["params_sha256"]


def rate_of(metrics, key):
    """All samples over all time, the first interval left out."""
    rates = [line[key] for line in events(metrics, "train")][1:]
    if not rates:
        raise BenchError("metrics.jsonl has too few lines of training")
    return statistics.harmonic_mean(rates)


def gpt2_flops(bench, parameters):
    """Of a token, forward and backward: attention as if it saw the tokens before alone, half of all, and as if it saw all."""
    sizes = SIZES[bench.sizes]
    attention = sizes["layers"] * sizes["width"] * sizes["length"]
    return {"6N+6LCT": 6 * parameters + 6 * attention, "6N+12LCT": 6 * parameters + 12 * attention}


def gpu_shown(bench):
    """What `dtrun gpus` says."""
    if "gpus" not in bench.made:
        bench.made["gpus"] = bench.program(["bin/dtrun", "gpus"], 90)
    return bench.made["gpus"]


def of_this_gpu(bench, table):
    """The value of a table by models of GPU; None where it lacks this one."""
    shown = gpu_shown(bench)
    return next((value for name, value in table.items() if re.search(rf"\b{name}\b", shown)), None)

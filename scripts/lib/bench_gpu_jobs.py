"""The jobs that the parts of scripts/bench_gpu train, and what their metrics say."""

import array
import itertools
import random
import statistics

from bench_common import BenchError
from bench_gpu_checks import events

# GPT-2 124M of 1024 tokens. Its vocabulary is what the data's different tokens are rounded up to: PyTorch is slow with one of an
# odd size, and both are to train the same model. Steps take an H100 some seconds, since its clock follows the power that it
# takes. The most telling micro batch comes first: time may run out.
GPT2 = {"layers": 12, "heads": 12, "width": 768, "length": 1024, "tokens": 4 << 20, "different": 50257, "vocabulary": 50304,
        "steps": {64: 80, 16: 160, 4: 320}}
# For tests without a GPU, whose numbers mean nothing: a model that a processor trains.
TINY = {"layers": 1, "heads": 2, "width": 16, "length": 16, "tokens": 1 << 14, "different": 97, "vocabulary": 128,
        "steps": {4: 6, 2: 6}}
VALIDATION_SAMPLES = 64


def sizes_of(bench):
    return TINY if bench.tiny else GPT2


def text_config(bench, bf16):
    """A small GPT-2 with dropout, on any bytes, in steps of 2 microbatches."""
    text = bench.scratch / "text"
    if not text.exists():
        text.write_bytes(bytes(random.Random(1).choices(range(32, 127), k=1 << 18)))
    # Up to 9.15 cuDNN's attention wants a number of positions that 128 divides.
    model = {"type": "gpt2", "n_layer": 2, "n_head": 4, "n_embd": 128, "n_positions": 128, "dropout": 0.1}
    if bench.tiny:
        model.update(n_layer=1, n_embd=32, n_positions=16)
    return {"device": "cuda", "model": model,
            "data": {"type": "text", "path": str(text), "sequence_length": model["n_positions"], "test_fraction": 0.01},
            "train": {"max_steps": 32 if bench.tiny else 600, "global_batch_size": 8, "micro_batch_size": 4, "optim": "adamw",
                      "learning_rate": 1e-3, "max_grad_norm": 1.0, "bf16": bf16, "logging_steps": 1, "eval_steps": 0,
                      "save_steps": 0}}


def tokens(bench):
    """A file of random tokens, those that are rare in text about as rare here (Zipf): the gradient of an embedding takes as
    long as its most frequent token."""
    folder = bench.scratch / "tokens"
    if not folder.exists():
        folder.mkdir()
        sizes, chosen = sizes_of(bench), random.Random(1)
        count = min(1 << 18, sizes["tokens"])
        so_far = list(itertools.accumulate(1 / rank for rank in range(1, sizes["different"] + 1)))
        block = array.array("H", chosen.choices(range(sizes["different"]), cum_weights=so_far, k=count))
        with open(folder / "train.bin", "wb") as file:
            for _ in range(sizes["tokens"] // count):
                block.tofile(file)
        with open(folder / "val.bin", "wb") as file:  # evaluated at the end
            block[:VALIDATION_SAMPLES * sizes["length"] + 1].tofile(file)
    return folder


def gpt2_steps(bench, batch):
    return sizes_of(bench)["steps"][batch] // (4 if bench.quick and not bench.tiny else 1)


def gpt2_config(bench, batch):
    sizes, steps = sizes_of(bench), gpt2_steps(bench, batch)
    return {"device": "cuda",
            "model": {"type": "gpt2", "n_layer": sizes["layers"], "n_head": sizes["heads"], "n_embd": sizes["width"],
                      "n_positions": sizes["length"], "vocab_size": sizes["vocabulary"], "dropout": 0.0},
            "data": {"type": "tokens", "path": str(tokens(bench)), "sequence_length": sizes["length"],
                     "vocab_size": sizes["different"]},
            "train": {"max_steps": steps, "global_batch_size": batch, "micro_batch_size": batch, "optim": "adamw",
                      "learning_rate": 1e-4, "weight_decay": 0.1, "max_grad_norm": 1.0, "bf16": True,
                      "logging_steps": max(1, steps // 6), "eval_steps": 0, "save_steps": 0}}


def last_hash(metrics):
    if not events(metrics, "end"):
        raise BenchError("metrics.jsonl has no end")
    return events(metrics, "end")[-1]["params_sha256"]


def tokens_per_second(metrics):
    """All tokens over all time, the first interval left out."""
    rates = [line["tokens_per_second"] for line in events(metrics, "train")][1:]
    if not rates:
        raise BenchError("metrics.jsonl has too few lines of training")
    return statistics.harmonic_mean(rates)

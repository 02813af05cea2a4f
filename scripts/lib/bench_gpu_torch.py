#!/usr/bin/env python3
"""What scripts/bench_gpu compares dtrun with: GPT-2 124M, the convnet or an MLP in PyTorch on one GPU, on data that lies
there already, GPT-2 on the first tokens of dtrun's file: dropout 0, tied head, clipping, AdamW fused. Or attention by
itself, or one step from dtrun's weights. Prints one JSON object.

  bench_gpu_torch.py gpt2 --batch 16 --tokens train.bin [--steps N] [--compile [--mode reduce-overhead]] [--bf16]
                         [--attention flash|cudnn]
  bench_gpu_torch.py mlp|convnet --batch 16 [--steps N] [--compile] [--bf16]
  bench_gpu_torch.py attention --batch 16
  bench_gpu_torch.py parity --batch 2 --weights model.safetensors --tokens train.bin     loss and norm of the gradient
  bench_gpu_torch.py --serve     reads such lines of words, and answers each with a line: {"error": why} where it fails

A server keeps what it compiled, so that measurements can take turns with others' at no cost. What it holds of the GPU
between two of them are the models' parameters and optimizers alone.
"""

import argparse
import contextlib
import json
import shlex
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

import bench_torch_models as models

models.WIDTH, models.LAYERS, models.HEADS, models.LENGTH = 768, 12, 12, 1024
models.VOCABULARY = 50304  # 50257 rounded up: as dtrun has it here
WARMUP_STEPS = 5
ATTENTIONS = ("flash", "cudnn")


class Convnet(nn.Module):
    """As configs/fashion_mnist_convnet.json has it."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 20, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(20, 20, 5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(320, 50), nn.ReLU(), nn.Linear(50, 10))

    def forward(self, x, targets):
        return F.cross_entropy(self.layers(x), targets)

    @staticmethod
    def batch(size):
        return torch.randn(size, 1, 28, 28), torch.randint(0, 10, (size,))


MODELS = {"gpt2": models.Gpt2, "mlp": models.Mlp, "convnet": Convnet}


def attention_backend(name):
    if name is None:
        return contextlib.nullcontext()
    from torch.nn.attention import SDPBackend, sdpa_kernel
    return sdpa_kernel({"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}[name])


def first_samples(file, count):
    """Their tokens, and to each the next one."""
    with open(file, "rb") as stream:
        tokens = torch.frombuffer(bytearray(stream.read(2 * (count * models.LENGTH + 1))), dtype=torch.int16).long() & 0xffff
    return tokens[:-1].view(count, -1), tokens[1:].view(count, -1)


class Training:
    """A model, compiled or not, that can be measured again and again."""

    def __init__(self, options):
        torch.manual_seed(1)
        self.kind, self.gpt2 = MODELS[options.model], options.model == "gpt2"
        self.net = self.kind().cuda()
        if self.gpt2:  # as GPT-2 begins, or the loss is hundreds; and numbers decide what power a GPU takes
            for parameter in self.net.parameters():
                if parameter.dim() > 1:
                    nn.init.normal_(parameter, std=0.02)
        self.run = torch.compile(self.net, dynamic=False, mode=options.mode) if options.compile else self.net
        self.optimizer = (torch.optim.AdamW(self.net.parameters(), lr=1e-4, weight_decay=0.1, fused=True) if self.gpt2
                          else torch.optim.SGD(self.net.parameters(), lr=0.01, momentum=0.9, fused=True))

    def measure(self, options):
        made = first_samples(options.tokens, options.batch) if self.gpt2 else self.kind.batch(options.batch)
        batch = [part.cuda() for part in made]

        def step():
            self.optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.bfloat16, enabled=options.bf16):
                loss = self.run(*batch)
            loss.backward()
            if self.gpt2:
                nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
            self.optimizer.step()

        torch.cuda.reset_peak_memory_stats()
        with attention_backend(options.attention):
            for _ in range(WARMUP_STEPS):
                step()
            torch.cuda.synchronize()
            since = time.perf_counter()
            for _ in range(options.steps):
                step()
            torch.cuda.synchronize()
        seconds = time.perf_counter() - since
        self.optimizer.zero_grad()
        return {"samples_per_second": options.steps * options.batch / seconds,
                "peak_bytes": torch.cuda.max_memory_allocated(),
                "parameters": sum(parameter.numel() for parameter in self.net.parameters())}


def attention_alone(options):
    """Milliseconds of scaled_dot_product_attention forward and backward, by each back end and by PyTorch's own choice."""
    shape = (options.batch, models.HEADS, models.LENGTH, models.WIDTH // models.HEADS)
    q, k, v = (torch.randn(shape, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    gradient = torch.randn_like(q)

    def forward():
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    def timed(work):
        times = []
        for _ in range(WARMUP_STEPS + options.steps):
            events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            events[0].record()
            kept = work()
            events[1].record()
            torch.cuda.synchronize()
            times.append(events[0].elapsed_time(events[1]))
            del kept
        return statistics.median(times[WARMUP_STEPS:])

    def chosen():
        """The kernels that run where nothing is asked for."""
        try:
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
                forward()
                torch.cuda.synchronize()
        except (RuntimeError, AssertionError) as failure:  # many machines let no program profile a GPU
            return f"not known: {failure}"[:200]
        return ", ".join(event.key for event in profile.key_averages())[:200]

    found = {}
    for name in (*ATTENTIONS, None):
        try:
            with attention_backend(name):
                out = forward()
                found[name or "own choice"] = {
                    "forward_milliseconds": timed(forward),
                    "backward_milliseconds": timed(lambda: torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True))}
        except RuntimeError as failure:
            found[name or "own choice"] = {"skipped": str(failure)[:200]}
    found["own choice"]["kernels"] = chosen()
    return found


# dtrun's names of what the models here call otherwise. Its matrices are [in, out].
NAMES = {"attn.c_attn": "c_attn", "attn.c_proj": "c_proj", "mlp.c_fc": "c_fc", "mlp.c_proj": "c_out"}


def read_weights(file):
    """The parameters of a model.safetensors, and its config."""
    with open(file, "rb") as stream:
        header = json.loads(stream.read(int.from_bytes(stream.read(8), "little")))
        data = bytearray(stream.read())
    config = json.loads(header.pop("__metadata__")["config"])
    parameters = {}
    for name, tensor in header.items():
        begin, end = tensor["data_offsets"]
        values = torch.frombuffer(data[begin:end], dtype=torch.float32).reshape(tensor["shape"])
        for theirs, ours in NAMES.items():
            if theirs in name:
                name, values = name.replace(theirs, ours), values.t() if values.dim() == 2 else values
                break
        parameters[name] = values
    return parameters, config


def parity(options):
    """In fp32, of a file's samples that are all alike."""
    parameters, config = read_weights(options.weights)
    models.WIDTH, models.LAYERS, models.HEADS = config["n_embd"], config["n_layer"], config["n_head"]
    models.LENGTH, models.VOCABULARY = config["n_positions"], config["vocab_size"]
    net = models.Gpt2().cuda()
    net.load_state_dict(parameters)
    loss = net(*(part.cuda() for part in first_samples(options.tokens, options.batch)))
    loss.backward()
    return {"loss": loss.item(), "grad_norm": float(nn.utils.clip_grad_norm_(net.parameters(), 1.0))}


def options_of(words):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=[*MODELS, "attention", "parity"], nargs="?")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--mode", choices=("reduce-overhead",), help="of torch.compile: with CUDA graphs")
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--attention", choices=ATTENTIONS, help="back end of scaled_dot_product_attention")
    parser.add_argument("--weights", metavar="FILE")
    parser.add_argument("--tokens", metavar="FILE")
    parser.add_argument("--serve", action="store_true")
    return parser.parse_args(words)


def answer(options, trainings):
    torch.backends.cudnn.allow_tf32 = False  # dtrun's fp32 is fp32
    try:
        if options.model == "attention":
            return {"torch": torch.__version__, **attention_alone(options)}
        if options.model == "parity":
            return {"torch": torch.__version__, **parity(options)}
        # Code compiled for one back end of attention must not run for another: one back end per process.
        key = (options.model, options.compile, options.mode, options.attention, options.bf16)
        if key not in trainings:
            trainings.clear()
            trainings[key] = Training(options)
        return {"torch": torch.__version__, **trainings[key].measure(options)}
    finally:
        torch.cuda.empty_cache()


def serve():
    trainings = {}
    for line in sys.stdin:
        try:
            found = answer(options_of(shlex.split(line)), trainings)
        except Exception as failure:
            trainings.clear()
            found = {"error": f"{type(failure).__name__}: {failure}"[:400]}
        print(json.dumps(found), flush=True)


def main():
    options = options_of(None)
    if options.serve:
        serve()
    else:
        print(json.dumps(answer(options, {})))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""What scripts/bench_gpu compares dtrun with: GPT-2 124M, the convnet or an MLP in PyTorch on one GPU, on random data
that lies there already. Prints one JSON object.

  bench_gpu_torch.py gpt2|mlp|convnet --batch 16 [--steps N] [--compile] [--bf16] [--attention flash|cudnn]
"""

import argparse
import contextlib
import json
import time

import torch
import torch.nn.functional as F
from torch import nn

import bench_torch_models as models

models.WIDTH, models.LAYERS, models.HEADS, models.LENGTH = 768, 12, 12, 1024
models.VOCABULARY = 50304  # 50257, as PyTorch's fastest training scripts round it up
WARMUP_STEPS = 5


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


def measure(options):
    torch.backends.cudnn.allow_tf32 = False  # dtrun's fp32 is fp32
    torch.manual_seed(1)
    kind = MODELS[options.model]
    net = kind().cuda()
    run = torch.compile(net) if options.compile else net
    gpt2 = options.model == "gpt2"
    optimizer = (torch.optim.AdamW(net.parameters(), lr=1e-4, weight_decay=0.1, fused=True) if gpt2
                 else torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, fused=True))
    batch = [part.cuda() for part in kind.batch(options.batch)]

    def step():
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=options.bf16):
            loss = run(*batch)
        loss.backward()
        if gpt2:
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()

    with attention_backend(options.attention):
        for _ in range(WARMUP_STEPS):
            step()
        torch.cuda.synchronize()
        since = time.perf_counter()
        for _ in range(options.steps):
            step()
        torch.cuda.synchronize()
    seconds = time.perf_counter() - since
    return {"torch": torch.__version__, "samples_per_second": options.steps * options.batch / seconds,
            "peak_bytes": torch.cuda.max_memory_allocated()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--attention", choices=("flash", "cudnn"), help="back end of scaled_dot_product_attention")
    print(json.dumps(measure(parser.parse_args())))


if __name__ == "__main__":
    main()

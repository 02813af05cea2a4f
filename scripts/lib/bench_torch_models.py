#!/usr/bin/python3
"""What the part `models` of scripts/bench compares dtrun with: the same MLP, GPT-2 or ResNet in PyTorch, on random data in
memory. One process with all threads, or DistributedDataParallel with gloo and one thread a worker; eager or compiled;
in fp32, or with torch.autocast in bf16. Prints one JSON object.

  bench_torch_models.py gpt2|mlp|resnet --batch 32 --workers 1|2 --threads N [--compile] [--bf16]
"""

import argparse
import json
import os
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WIDTH, LAYERS, HEADS, LENGTH, VOCABULARY = 256, 4, 4, 128, 256  # as bench_models.py has it
SIZES = (784, 512, 512, 10)
WARMUP_STEPS = 3


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.c_attn, self.c_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.c_fc, self.c_out = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = (part.view(batch, length, HEADS, -1).transpose(1, 2)
                   for part in self.c_attn(self.ln_1(x)).split(WIDTH, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.c_out(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.h, self.ln_f = nn.ModuleList(Block() for _ in range(LAYERS)), nn.LayerNorm(WIDTH)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe.weight
        for block in self.h:
            x = block(x)
        return F.cross_entropy(F.linear(self.ln_f(x), self.wte.weight).flatten(0, 1), targets.flatten())

    @staticmethod
    def batch(size):
        text = torch.randint(0, VOCABULARY, (size, LENGTH + 1))
        return text[:, :-1].contiguous(), text[:, 1:].contiguous()


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        layers = [module for i, o in zip(SIZES, SIZES[1:]) for module in (nn.Linear(i, o), nn.ReLU())]
        self.layers = nn.Sequential(*layers[:-1])

    def forward(self, x, targets):
        return F.cross_entropy(self.layers(x), targets)

    @staticmethod
    def batch(size):
        return torch.randn(size, SIZES[0]), torch.randint(0, SIZES[-1], (size,))


class BasicBlock(nn.Module):
    def __init__(self, before, channels, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(before, channels, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)
        self.downsample = None
        if stride != 1:
            self.downsample = nn.Sequential(nn.Conv2d(before, channels, 1, stride, bias=False), nn.BatchNorm2d(channels))

    def forward(self, x):
        out = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(out + (x if self.downsample is None else self.downsample(x)))


class Resnet(nn.Module):
    """ResNet-18 for images of 32x32. Channels lie last in memory, as is fastest here in PyTorch."""

    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64)
        stages = [(64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)]
        self.blocks = nn.Sequential(*(block for before, channels, stride in stages for block in (
            BasicBlock(before, channels, stride), BasicBlock(channels, channels, 1))))
        self.fc = nn.Linear(512, 10)
        self.to(memory_format=torch.channels_last)

    def forward(self, x, targets):
        x = self.blocks(F.relu(self.bn1(self.conv1(x))))
        return F.cross_entropy(self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1)), targets)

    @staticmethod
    def batch(size):
        return (torch.randn(size, 3, 32, 32).contiguous(memory_format=torch.channels_last),
                torch.randint(0, 10, (size,)))


MODELS = {"gpt2": Gpt2, "mlp": Mlp, "resnet": Resnet}


def measure(rank, options, meeting, result):
    torch.set_num_threads(options.threads)
    torch.manual_seed(rank)
    kind = MODELS[options.model]
    net = kind()
    if options.workers > 1:
        dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=options.workers)
        net = DistributedDataParallel(net, gradient_as_bucket_view=True)
    run = torch.compile(net) if options.compile else net
    fused = {"fused": True} if options.model == "gpt2" else {}
    optimizer = (torch.optim.AdamW(net.parameters(), lr=1e-3, **fused) if options.model == "gpt2"
                 else torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9))
    batch = kind.batch(options.batch // options.workers)

    def step():
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=options.bf16):
            loss = run(*batch)
        loss.backward()
        if options.model == "gpt2":
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()

    for _ in range(WARMUP_STEPS):
        step()
    if options.workers > 1:
        dist.barrier()
    since = time.perf_counter()
    for _ in range(options.steps):
        step()
    seconds = time.perf_counter() - since
    if rank == 0:
        with open(result, "w") as file:
            json.dump({"torch": torch.__version__, "samples_per_second": options.steps * options.batch / seconds}, file)
    if options.workers > 1:
        dist.barrier()
        dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--batch", type=int, required=True, help="samples of a step over all workers")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1, help="of each worker")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--bf16", action="store_true")
    options = parser.parse_args()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as scratch:
        result = os.path.join(scratch, "result.json")
        arguments = (options, os.path.join(scratch, "meeting"), result)
        if options.workers > 1:
            mp.spawn(measure, args=arguments, nprocs=options.workers)
        else:
            measure(0, *arguments)
        with open(result) as file:
            print(file.read())


if __name__ == "__main__":
    main()

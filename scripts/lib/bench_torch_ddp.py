#!/usr/bin/python3
"""What scripts/bench compares dtrun with: the same network, data and batch under PyTorch's own
DistributedDataParallel with gloo, in the form in which PyTorch is fastest on this task (samples are tensors in
memory, no DataLoader unless asked for, gradients live in the buckets). Prints one JSON object.

Runs with any PyTorch from 1.10 on; Debian's is python3-torch, for /usr/bin/python3.
"""

import argparse
import gzip
import json
import os
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

MEAN, STD = 0.2860, 0.3530  # of Fashion-MNIST's training pixels in 0..1, as dtrun normalises


class ConvNet(nn.Module):
    """The network of the PyTorch MNIST examples, as configs/fashion_mnist_convnet.json has it."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 20, 5)
        self.conv2 = nn.Conv2d(20, 20, 5)
        self.fc1 = nn.Linear(320, 50)
        self.fc2 = nn.Linear(50, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.fc1(x.flatten(1)))
        return F.log_softmax(self.fc2(x), dim=1)


def read_idx(path):
    """Bytes of an IDX file as a uint8 tensor of its shape."""
    with gzip.open(path) as file:
        raw = bytearray(file.read())
    dimensions = [int.from_bytes(raw[4 + 4 * i:8 + 4 * i], "big") for i in range(raw[3])]
    return torch.frombuffer(raw, dtype=torch.uint8, offset=4 + 4 * raw[3]).reshape(dimensions)


def load(path):
    images = read_idx(os.path.join(path, "train-images-idx3-ubyte.gz")).float().unsqueeze(1) / 255
    labels = read_idx(os.path.join(path, "train-labels-idx1-ubyte.gz")).long()
    return (images - MEAN) / STD, labels


def batches_in_memory(images, labels, rank, options):
    """Endless batches; each epoch is a new permutation, of which every rank takes its own part."""
    batch, world = options.batch_per_worker, options.workers
    for epoch in range(sys.maxsize):
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(42 + epoch))[rank::world]
        for begin in range(0, len(order) - batch + 1, batch):
            index = order[begin:begin + batch]
            yield images[index], labels[index]


def batches_of_dataloader(images, labels, rank, options):
    data = torch.utils.data.TensorDataset(images, labels)
    sampler = torch.utils.data.DistributedSampler(data, options.workers, rank, seed=42)
    loader = torch.utils.data.DataLoader(data, options.batch_per_worker, sampler=sampler, drop_last=True)
    for epoch in range(sys.maxsize):
        sampler.set_epoch(epoch)
        yield from loader


def train(model, batches, options):
    """Seconds of each interval of steps after the warm-up, and the last loss."""
    optimizer = torch.optim.SGD(model.parameters(), lr=options.learning_rate, momentum=options.momentum)
    intervals = []
    dist.barrier()
    since = time.perf_counter()
    for step in range(1, options.steps + 1):
        x, y = next(batches)
        optimizer.zero_grad()
        loss = F.nll_loss(model(x), y)
        loss.backward()
        optimizer.step()
        if step % options.interval == 0:
            now = time.perf_counter()
            if step > options.warmup_steps:
                intervals.append(now - since)
            since = now
    return intervals, loss.item()


def summary(intervals, loss, options):
    samples = options.interval * options.batch_per_worker * options.workers
    return {
        "torch": torch.__version__,
        "samples_per_second": len(intervals) * samples / sum(intervals),
        "best_interval": samples / min(intervals),
        "median_interval": samples / statistics.median(intervals),
        "loss": loss,
    }


def worker(rank, options, rendezvous_file, result_file):
    torch.set_num_threads(1)
    torch.manual_seed(42)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous_file}", rank=rank, world_size=options.workers)
    images, labels = load(options.data)
    model = DistributedDataParallel(ConvNet(), broadcast_buffers=False, gradient_as_bucket_view=True)
    batches = (batches_of_dataloader if options.dataloader else batches_in_memory)(images, labels, rank, options)
    intervals, loss = train(model, batches, options)
    if rank == 0:
        with open(result_file, "w") as file:
            json.dump(summary(intervals, loss, options), file)
    dist.barrier()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist", help="directory of the IDX files")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch-per-worker", type=int, default=64)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--warmup-steps", type=int, default=50, help="steps that are not measured")
    parser.add_argument("--interval", type=int, default=50, help="steps between two looks at the clock")
    parser.add_argument("--learning-rate", type=float, default=0.01)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--dataloader", action="store_true", help="feed through torch's DataLoader")
    options = parser.parse_args()
    if options.steps < options.warmup_steps + options.interval:
        parser.error("--steps must be at least --warmup-steps + --interval")
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as scratch:
        result = os.path.join(scratch, "result.json")
        mp.spawn(worker, args=(options, os.path.join(scratch, "rendezvous"), result), nprocs=options.workers)
        with open(result) as file:
            print(file.read())


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"  # spawned workers inherit it before they load any library
    main()

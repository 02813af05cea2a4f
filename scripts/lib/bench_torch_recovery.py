#!/usr/bin/python3
"""What the part `recovery` of scripts/bench compares dtrun with: the training of bench_torch_ddp.py as a script for
torchrun that can be killed. Rank 0 writes a checkpoint every so many steps and a line for each completed step;
after a restart all ranks go on from the newest checkpoint. The global batch is the same for any number of workers.

  torchrun … bench_torch_recovery.py FOLDER STEPS
"""

import argparse
import json
import os
import pathlib
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

from bench_torch_ddp import ConvNet, load

GLOBAL_BATCH = 128
SAVE_STEPS = 50


def begin(doc):
    """The options of this program, or of another that trains the same; torch is set up as for all of them."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("steps", type=int)
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist", help="directory of the IDX files")
    torch.set_num_threads(1)
    torch.manual_seed(42)
    return parser.parse_args()


class Batches:
    """Of each step, by its number alone: a permutation of the samples for every epoch."""

    def __init__(self, images, labels, rank, world):
        self.images, self.labels, self.rank, self.world = images, labels, rank, world
        self.epoch = self.order = None

    def of(self, step):
        epoch, number = divmod(step, len(self.images) // GLOBAL_BATCH)
        if epoch != self.epoch:
            self.order = torch.randperm(len(self.images), generator=torch.Generator().manual_seed(42 + epoch))
            self.epoch = epoch
        index = self.order[number * GLOBAL_BATCH:(number + 1) * GLOBAL_BATCH][self.rank::self.world]
        return self.images[index], self.labels[index]


def save(path, step, model, optimizer):
    """As a whole or not at all."""
    new = path.with_suffix(".new")
    torch.save({"step": step, "model": model.module.state_dict(), "optimizer": optimizer.state_dict()}, new)
    os.replace(new, path)


def resume(path, model, optimizer):
    """The step of the checkpoint; 0 if there is none."""
    if not path.exists():
        return 0
    state = torch.load(path)
    model.module.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["step"]


def next_generation(path):
    """One more than in the last line."""
    lines = path.read_text().splitlines() if path.exists() else []
    return json.loads(lines[-1])["generation"] + 1 if lines else 1


def train(options, rank, world):
    checkpoint, metrics = options.folder / "checkpoint.pt", options.folder / "metrics.jsonl"
    batches = Batches(*load(options.data), rank, world)
    model = DistributedDataParallel(ConvNet(), broadcast_buffers=False, gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    first = resume(checkpoint, model, optimizer)
    generation = next_generation(metrics) if rank == 0 else 0
    dist.barrier()
    with open(metrics if rank == 0 else os.devnull, "a", buffering=1) as lines:

        def write(event, step, **more):
            lines.write(json.dumps({"event": event, "step": step, "generation": generation, "world_size": world, **more,
                                    "time": time.time()}) + "\n")

        for step in range(first, options.steps):
            x, y = batches.of(step)
            optimizer.zero_grad()
            F.nll_loss(model(x), y).backward()
            optimizer.step()
            write("train", step + 1)
            if rank == 0 and (step + 1) % SAVE_STEPS == 0:
                save(checkpoint, step + 1, model, optimizer)
        # Two runs of one seed need not agree to the last bit.
        write("end", options.steps, params_sha256="not compared")


def main():
    options = begin(__doc__)
    dist.init_process_group("gloo")
    train(options, dist.get_rank(), dist.get_world_size())
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

#!/usr/bin/python3
"""The training of bench_torch_recovery.py with the worker kit, under `dtrun --recovery memory`: survivors keep model and
optimizer, and whoever is rank 0 writes a line for each completed step. The global batch is the same for any number of workers.

  dtrun --recovery memory … bench_kit_recovery.py FOLDER STEPS
"""

import json
import time

import torch
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

import dtrun
from bench_torch_ddp import ConvNet, load
from bench_torch_recovery import GLOBAL_BATCH, begin


def train(options):
    job = dtrun.start("gloo")
    images, labels = load(options.data)
    plan = dtrun.Plan(len(images), GLOBAL_BATCH, seed=42, drop_last=True)
    model = DistributedDataParallel(ConvNet(), broadcast_buffers=False, gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    job.keep(model=model, optimizer=optimizer)
    with open(options.folder / "metrics.jsonl", "a", buffering=1) as lines:

        def write(event, step, **more):
            if job.rank == 0:
                lines.write(json.dumps({"event": event, "step": step, "generation": job.generation, "world_size": job.world_size,
                                        **more, "time": time.time()}) + "\n")

        for step in job.steps(options.steps):
            with step:
                mine = dtrun.share(GLOBAL_BATCH, job.rank, job.world_size)
                index = plan[step.number][mine.start:mine.stop]
                optimizer.zero_grad()
                F.nll_loss(model(images[index]), labels[index]).backward()
                optimizer.step()
            if step.committed:
                write("train", step.number + 1)
        # Another number of workers adds up in another order.
        write("end", options.steps, params_sha256="not compared")


def main():
    options = begin(__doc__)
    train(options)


if __name__ == "__main__":
    main()

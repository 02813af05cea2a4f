#!/usr/bin/python3
"""What the part `recovery` of scripts/bench compares dtrun with: the training of bench_torch_ddp.py under torchft, whose
survivors go on without the lost worker and give their state to the one that replaces it. Each worker is a replica group,
under a torchrun of its own; the first one that takes part in a step writes its line. The global batch is the same for
any number of workers.

  torchrun --standalone … bench_torchft_recovery.py FOLDER STEPS, with $TORCHFT_LIGHTHOUSE
"""

import datetime
import json
import time

import torch
import torch.nn.functional as F
from torchft import DistributedDataParallel, Manager, Optimizer, ProcessGroupGloo

from bench_torch_ddp import ConvNet, load
from bench_torch_recovery import Batches, begin

TIMEOUT = datetime.timedelta(seconds=20)


def train(options):
    net = ConvNet()
    plain = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)

    def take(state):
        net.load_state_dict(state["model"])
        plain.load_state_dict(state["optimizer"])

    def give():
        return {"model": net.state_dict(), "optimizer": plain.state_dict()}

    manager = Manager(pg=ProcessGroupGloo(timeout=TIMEOUT), min_replica_size=1, load_state_dict=take, state_dict=give,
                      replica_id="bench", timeout=TIMEOUT)
    model, optimizer = DistributedDataParallel(manager, net), Optimizer(manager, plain)
    images, labels = load(options.data)
    with open(options.folder / "metrics.jsonl", "a", buffering=1) as lines:

        def write(event, **more):
            lines.write(json.dumps({"event": event, "step": manager.current_step(), **more, "time": time.time()}) + "\n")

        while manager.current_step() < options.steps:
            optimizer.zero_grad()  # asks for the participants
            world, rank = max(1, manager.num_participants()), manager.participating_rank() or 0
            x, y = Batches(images, labels, rank, world).of(manager.current_step())
            F.nll_loss(model(x), y).backward()
            done = manager.current_step()
            optimizer.step()
            if manager.participating_rank() == 0 and manager.current_step() > done:
                write("train", generation=manager._quorum_id, world_size=world)
        # Two runs of one seed need not agree to the last bit.
        if manager.participating_rank() == 0:
            write("end", params_sha256="not compared")
    manager.shutdown(wait=False)


def main():
    options = begin(__doc__)
    train(options)


if __name__ == "__main__":
    main()

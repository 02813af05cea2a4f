"""DistributedDataParallel that lives with a changing world: it goes on from its last checkpoint after each restart.

  elastic_train.py FOLDER     trains until FOLDER/enough exists, then saves FOLDER/model.pt and ends
"""

import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEP_SECONDS = 0.05


def save(path, state):
    torch.save(state, f"{path}.part")
    os.replace(f"{path}.part", path)


def main():
    folder = sys.argv[1]
    checkpoint = os.path.join(folder, "checkpoint.pt")
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    step = 0
    if os.path.exists(checkpoint):
        state = torch.load(checkpoint)
        step = state["step"]
        model.load_state_dict(state["model"])
    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.01)
    print(f"rank {rank} of {world_size} starts at step {step}", flush=True)
    while True:
        enough = torch.tensor([float(os.path.exists(os.path.join(folder, "enough")))])
        dist.broadcast(enough, src=0)
        if enough.item():
            break
        optimizer.zero_grad()
        parallel(torch.full((2, 4), float(rank + 1))).pow(2).mean().backward()
        optimizer.step()
        step += 1
        if rank == 0:
            save(checkpoint, {"step": step, "model": model.state_dict()})
        print(f"rank {rank} of {world_size} did step {step}", flush=True)
        time.sleep(STEP_SECONDS)
    if rank == 0:
        save(os.path.join(folder, "model.pt"), model.state_dict())
    print(f"rank {rank} of {world_size} ends at step {step}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

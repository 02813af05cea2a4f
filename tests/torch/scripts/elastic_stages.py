"""Training whose worlds have sizes 1, 2 and 1, four steps each: a stage waits until the world has its size.

  elastic_stages.py FOLDER     goes on from FOLDER/checkpoint.pt; at the end rank 0 prints the parameters

So the result does not depend on when nodes come and go, only on whether every step was done once, from the right state.
"""

import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STAGES = (1, 2, 1)
STEPS = 4


def main():
    checkpoint = os.path.join(sys.argv[1], "checkpoint.pt")
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = torch.nn.Linear(6, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    step = 0
    if os.path.exists(checkpoint):
        state = torch.load(checkpoint)
        step = state["step"]
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    parallel = DistributedDataParallel(model)
    print(f"rank {rank} of {world_size} goes on at step {step}", flush=True)
    while step < STEPS * len(STAGES):
        while STAGES[step // STEPS] != world_size:  # until the launcher ends this world, or a peer is gone
            dist.all_reduce(torch.zeros(1))
            time.sleep(0.05)
        inputs = torch.randn(5, 6, generator=torch.Generator().manual_seed(1000 * step + rank))
        optimizer.zero_grad()
        parallel(inputs).pow(2).mean().backward()
        optimizer.step()
        step += 1
        if rank == 0:
            state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(state, f"{checkpoint}.part")
            os.replace(f"{checkpoint}.part", checkpoint)
            if step % STEPS == 0:
                print(f"a world of {world_size} has done step {step}", flush=True)
    if rank == 0:
        values = torch.cat([p.detach().flatten() for p in model.parameters()]).tolist()
        print("ends with", [value.hex() for value in values], flush=True)


if __name__ == "__main__":
    main()

"""broadcast, all_reduce, all_gather, a sub-group and the store, through the default env:// initialisation."""

import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()

word = torch.arange(4.0) * (rank + 1)
dist.broadcast(word, src=world_size - 1)
total = torch.full((3,), float(rank + 1))
dist.all_reduce(total)
everyone = [torch.zeros(1, dtype=torch.int64) for _ in range(world_size)]
dist.all_gather(everyone, torch.tensor([rank * rank]))
first_two = dist.new_group([0, 1])
pair = torch.tensor([float(rank)])
if rank < 2:
    dist.all_reduce(pair, op=dist.ReduceOp.MAX, group=first_two)
dist.barrier()
# One write: torchrun's workers share its stdout, and print() writes the newline apart.
sys.stdout.write(f"rank {rank} of {world_size}: {word.tolist()} {total.tolist()} {torch.cat(everyone).tolist()} "
                 f"{pair.tolist()}\n")
dist.destroy_process_group()

"""Hangs, after one all_reduce that succeeds. late: rank 1 never comes to the second one, for it sleeps.
deadlock: rank 1 is in another group."""

import sys
import time

import torch
import torch.distributed as dist


def load_batch():
    time.sleep(1000)


def main():
    dist.init_process_group("gloo")
    tensor = torch.ones(4)
    dist.all_reduce(tensor)
    if dist.get_rank() == 1:
        if sys.argv[1] == "late":
            load_batch()
        else:
            dist.broadcast(tensor, 0)
            dist.broadcast(tensor, 2)
    dist.all_reduce(tensor)


main()

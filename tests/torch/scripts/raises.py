"""Rank 1 meets a bad sample; @record writes its traceback to TORCHELASTIC_ERROR_FILE. Rank 0 waits for it in vain."""

import os

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record


def load_sample(index):
    raise ValueError(f"sample {index} has no label")


@record
def main():
    dist.init_process_group("gloo")
    dist.barrier()
    if os.environ["RANK"] == "1":
        load_sample(4711)
    dist.all_reduce(torch.ones(1))


if __name__ == "__main__":
    main()

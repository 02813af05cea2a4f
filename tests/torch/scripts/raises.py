"""Rank 1 meets a bad sample; @record writes its traceback to TORCHELASTIC_ERROR_FILE. Rank 0 waits for it in vain, and in no
collective: one that ends with its peer might end this rank before the other."""

import os
import time

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
    time.sleep(600)


if __name__ == "__main__":
    main()

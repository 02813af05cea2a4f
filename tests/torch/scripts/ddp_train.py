"""DistributedDataParallel with a DistributedSampler, as PyTorch's tutorials write it. Nothing here knows dtrun.

Every rank prints which samples it saw and the checksum of its final parameters.
"""

import argparse
import hashlib
import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=8)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank, local_rank = dist.get_rank(), int(os.environ["LOCAL_RANK"])

    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(240, 20, generator=generator)
    labels = (inputs.sum(dim=1) > 0).long()
    dataset = TensorDataset(torch.arange(len(inputs)), inputs, labels)
    sampler = DistributedSampler(dataset, shuffle=True, seed=3)
    loader = DataLoader(dataset, batch_size=args.batch_size, sampler=sampler)

    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(20, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    seen = hashlib.sha256()
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for indices, batch, target in loader:
            seen.update(indices.numpy().tobytes())
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(batch), target).backward()
            optimizer.step()

    parameters = hashlib.sha256()
    for parameter in model.parameters():
        parameters.update(parameter.detach().numpy().tobytes())
    # One write: torchrun's workers share its stdout, and print() writes the newline apart.
    sys.stdout.write(f"rank {rank} local {local_rank} samples {seen.hexdigest()} parameters {parameters.hexdigest()}\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Training that goes on when a worker dies: what a PyTorch script says to dtrun.

    job = dtrun.start("gloo")                    # in place of dist.init_process_group("gloo")
    data = dtrun.Batches(dataset, global_batch_size=48)
    model = DDP(Net()); opt = SGD(model.parameters(), lr=0.1)
    job.keep(model=model, opt=opt)               # what a newcomer is sent
    for step in job.steps(1000, data):
        with step as (x, y):                     # a peer's death ends the block; then it begins again
            opt.zero_grad()
            (loss_fn(model(x), y) * step.weight).backward()
            opt.step()                           # from here to the end of the block: no collectives

Under plain python, torchrun, or a dtrun that was not told `--recovery memory`, the same script is a plain loop.
docs/worker-kit.md has the rules. torch is imported by the first use of `start` or `Batches`."""

from __future__ import annotations

import importlib
from typing import Any

from .signs import heartbeat, progress

_LAZY = {"Batches": "batches", "Plan": "batches", "share": "batches", "Job": "job", "Step": "job", "start": "elastic"}
__all__ = ["Batches", "Job", "Plan", "Step", "heartbeat", "progress", "share", "start"]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'dtrun' has no attribute '{name}'")
    return getattr(importlib.import_module("." + _LAZY[name], __name__), name)

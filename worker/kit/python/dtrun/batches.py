"""Which samples belong to which step: a function of (seed, step) alone. How many workers share a step is decided when it is
computed, so any number of them goes through the data in the same order, each sample once an epoch."""

from __future__ import annotations

import functools
import os
import signal
import threading
import time
from typing import Any, Callable, Iterator, Sequence

import torch
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.dataloader import default_collate

RATE_OVER_S = 1.0  # at least
EPOCHS_APART = 1_000_003  # seeds of two epochs, or of neighbouring seeds, do not meet


def share(count: int, rank: int, world_size: int) -> range:
    """Rank's part of `count` samples: contiguous, none left out, none twice, sizes differ by at most one."""
    return range(rank * count // world_size, (rank + 1) * count // world_size)


class Plan:
    """Step k has the samples plan[k]. The last step of an epoch has what is left, unless drop_last."""

    def __init__(self, samples: int, global_batch_size: int, seed: int = 0, shuffle: bool = True,
                 drop_last: bool = False) -> None:
        if global_batch_size < 1 or samples < (global_batch_size if drop_last else 1):
            raise ValueError(f"{samples} samples make no step of {global_batch_size}")
        self.samples, self.global_batch_size, self.seed, self.shuffle = samples, global_batch_size, seed, shuffle
        self.steps_per_epoch = samples // global_batch_size if drop_last else -(-samples // global_batch_size)
        self._epoch = -1
        self._order = torch.empty(0, dtype=torch.int64)

    def __getitem__(self, step: int) -> torch.Tensor:
        epoch, at = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:
            generator = torch.Generator().manual_seed(self.seed * EPOCHS_APART + epoch)
            self._order = torch.randperm(self.samples, generator=generator) if self.shuffle else torch.arange(self.samples)
            self._epoch = epoch
        return self._order[at * self.global_batch_size:(at + 1) * self.global_batch_size]


class _Marked(Dataset):
    """The first index of a batch is its mark, which comes back with it."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __getitem__(self, index: Any) -> Any:
        return index if isinstance(index, tuple) else self.dataset[index]


class _Collate:
    def __init__(self, collate: Callable[[list[Any]], Any]) -> None:
        self.collate = collate

    def __call__(self, items: Sequence[Any]) -> Any:
        mark, *samples = items
        return mark, self.collate(samples) if samples else None


def _begin_loader(init: Callable[[int], Any] | None, number: int) -> None:
    """In a loader process. A signal is sent to all processes of a worker, and what follows from it is the script's to decide:
    it may be in a step that needs its loaders. None but the script ends a loader, by SIGTERM."""
    for ignored in (signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    threading.Thread(target=_end_when_told_by, args=(os.getppid(),), daemon=True, name="dtrun-loader").start()
    if init is not None:
        init(number)


def _end_when_told_by(script: int) -> None:
    while signal.sigwaitinfo([signal.SIGTERM]).si_pid != script:
        pass
    os._exit(0)


class Batches:
    """In place of DataLoader and DistributedSampler; `loader` are DataLoader's other options. Its processes are forked once,
    before there are connections that they would inherit, and stay when the number of workers changes: what they had
    loaded for another place is dropped. Make it above the loop."""

    def __init__(self, dataset: Any, global_batch_size: int, seed: int = 0, shuffle: bool = True, drop_last: bool = False,
                 collate_fn: Callable[[list[Any]], Any] = default_collate,
                 worker_init_fn: Callable[[int], Any] | None = None, **loader: Any) -> None:
        self.plan = Plan(len(dataset), global_batch_size, seed, shuffle, drop_last)
        self._place: tuple[int, int, int] | None = None  # generation, rank, world size
        self._at = 0
        self._rate: dict[str, float] = {}
        self._loader = iter(DataLoader(_Marked(dataset), batch_sampler=self._indices(), collate_fn=_Collate(collate_fn),
                                       worker_init_fn=functools.partial(_begin_loader, worker_init_fn), **loader))

    def __len__(self) -> int:
        """Steps of an epoch."""
        return self.plan.steps_per_epoch

    def _indices(self) -> Iterator[list[Any]]:
        while True:
            if self._place is None:
                yield [("no place yet",)]
                continue
            (generation, rank, world_size), at = self._place, self._at
            self._at += 1
            samples = self.plan[at]
            mine = share(len(samples), rank, world_size)
            # Every worker must take part in every step: who has no sample computes one that does not count.
            mark = (generation, at, len(mine) * world_size / len(samples))
            yield [mark] + samples[list(mine) or [0]].tolist()

    def place(self, generation: int, rank: int, world_size: int, step: int) -> None:
        """From `step` on this is a worker of that generation."""
        self._place, self._at = (generation, rank, world_size), step
        self._since, self._samples = time.monotonic(), 0

    def shown(self, step: int) -> dict[str, float]:
        """What people see of a step that is done: how far the data is, and how fast it goes by."""
        epoch, at = divmod(step, len(self))
        self._samples += min(self.plan.global_batch_size, self.plan.samples - at * self.plan.global_batch_size)
        seconds = time.monotonic() - self._since
        if seconds >= RATE_OVER_S:
            self._rate = {"samples_per_second": self._samples / seconds}
            self._since, self._samples = self._since + seconds, 0
        return {"epoch": epoch + (at + 1) / len(self), **self._rate}

    def of(self, step: int) -> tuple[Any, float]:
        """The batch, and the factor that makes the mean over workers of their mean losses the mean over the step's samples;
        1 if the number of workers divides it. Steps come in order."""
        if self._place is None:
            raise RuntimeError("batches are given out by job.steps(total, data)")
        while True:
            mark, batch = next(self._loader)
            if mark[:2] == (self._place[0], step):
                return batch, mark[2]

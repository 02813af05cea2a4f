"""A job as the script sees it, where no worker outlives another: plain python, torchrun, or dtrun without
`--recovery memory`. elastic.py has the other one, with the same names."""

from __future__ import annotations

import os
from typing import Any, Callable, Iterable, Iterator

import torch
import torch.distributed as dist

from . import _control, signs
from ._units import Unit, average, meet_by_environment

OnRegroup = Callable[["Job"], None]


class Step:
    """One step, for one `with`."""

    def __init__(self, job: Job, number: int, data: Any) -> None:
        self._job, self._data = job, data
        self.number = number
        self.committed = False  # the block has ended, and its step counts; else it is done again
        # Makes the mean over the workers of their mean losses the mean over the step's samples.
        self.weight = 1.0
        self.shown: dict[str, Any] = {}
        self._used = False

    def log(self, **values: Any) -> None:
        """For people: loss, learning_rate, accuracy (0..1), samples_per_second, epoch."""
        _control.check_shown(values)
        self.shown.update(values)

    def __enter__(self) -> Any:
        self._used = True
        if self._data is None:
            return None
        batch, self.weight = self._data.of(self.number)
        return batch

    def require_used(self) -> None:
        if not self._used:
            raise RuntimeError("the body of this loop has to begin with: with step:")

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        if error is None:
            self.committed = True
            known = {} if self._data is None else self._data.shown(self.number)
            self._job.commit(self.number, {**known, **self.shown})
        return False


class Job:
    """What `dtrun.start` returns."""

    def __init__(self) -> None:
        self.rank, self.world_size, self.generation = 0, 1, 0
        self.local_rank = int(os.environ.get("LOCAL_RANK", 0))
        self.done: int | None = None  # steps done, of the state that this process holds; None: it holds none
        self.stopping = False         # told to end (SIGTERM, Ctrl-C, stop()): the loop ends after the step in hand
        self._things: dict[str, Any] = {}
        self._on_regroup: list[OnRegroup] = []
        self._unit = Unit(1, 0)
        self._peers: Any = None  # the group of those who hold the same state

    def keep(self, **things: Any) -> None:
        """The state: whatever has state_dict() and load_state_dict(). A newcomer is sent it, once for each time it joins."""
        for name, thing in things.items():
            if not (hasattr(thing, "state_dict") and hasattr(thing, "load_state_dict")):
                raise TypeError(f"job.keep({name}=…): a {type(thing).__name__} has no state_dict and load_state_dict")
        self._things.update(things)

    def on_regroup(self, function: OnRegroup) -> OnRegroup:
        """Called with this job each time that the default group was made anew, before the next step: for groups and meshes of
        the script's own. The old ones are gone by then."""
        self._on_regroup.append(function)
        return function

    def steps(self, total: int, data: Any = None, start: int = 0, min_workers: int = 1) -> Iterator[Step]:
        """Steps start…total-1, each for `with step as batch:`. `data`: a Batches, or None. `start`: steps done by the state
        that the script has loaded. `min_workers`: with fewer, workers wait."""
        for function in self._on_regroup:
            function(self)
        if data is not None:
            data.place(self.generation, self.rank, self.world_size, start)
        self.done = start
        signs.progress(start, total)
        for number in range(start, total):
            step = Step(self, number, data)
            yield step
            step.require_used()
            if self.stopping:
                break
        signs.at_rest()

    def stop(self) -> None:
        """Ends the loop on all ranks, after this step or the next. Where no worker outlives another, all ranks call it in the
        same step."""
        self.stopping = True

    def average(self, parameters: Iterable[torch.Tensor]) -> None:
        """Makes gradients their means over the units, or over the ranks if there are none: once in a step, between backward and
        the first update. All ranks name the same parameters; one without a gradient counts with zeros."""
        average(self._peers, self.world_size // self._unit.size, parameters)

    def commit(self, number: int, shown: dict[str, Any]) -> None:
        """For the step's end."""
        self.done = number + 1
        signs.note(step=self.done, **shown)


def start_plain(backend: str, unit: int = 1) -> Job:
    """Process groups by the environment, as torchrun gives it, or alone."""
    job = Job()
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        job.rank, job.world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        if unit == 1:
            dist.init_process_group(backend)
            job._peers = dist.group.WORLD
        else:
            job._unit, job._peers = meet_by_environment(backend, unit)
    else:
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    return job


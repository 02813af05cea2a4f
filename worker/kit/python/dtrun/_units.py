"""Units: neighbouring ranks that hold one state together, such as the shards of FSDP. The unit is the world that the script's
collectives see, and lives as long as its processes: when one of them dies, the agent ends the others. Its twins, the
ranks with the same place in the other units, hold the same shard; what they do together is what a fault breaks.

So that the workers of a unit stay together, whatever any of them does with its twins is done by all of them or by none."""

from __future__ import annotations

from typing import Any, Callable, Iterable, Iterator, NamedTuple

import torch
import torch.distributed as dist

from . import _torch_private
from ._control import Left
from ._groups import Groups

MOST_BYTES = 25 << 20  # of gradients that are averaged at once, as DDP has it


def check_unit(unit: int, workers: int, of: str) -> None:
    """Raises SystemExit if so many workers are no whole number of units."""
    if unit < 1 or workers % unit != 0:
        raise SystemExit(f"dtrun.start(unit={unit}): {of} {workers} is no multiple of it. A unit has its ranks on one node, and "
                         "all units have as many")


class Votes(NamedTuple):
    generation_ends: bool = False  # after the step in hand
    loop_ends: bool = False        # the same


NO_VOTES = Votes()


class Unit:
    """This rank's. Of one rank, if the script has no units."""

    def __init__(self, size: int, place: int) -> None:
        self.size, self.place = size, place

    def together(self, part: Callable[[], Votes | None], is_fault: Callable[[BaseException], bool]) -> Votes:
        """Does this rank's part of what is done with twins, which gives its votes. Raises if a fault kept any rank of the unit
        from its part (Left); else returns for each vote whether any of them has it."""
        if self.size == 1:
            return part() or NO_VOTES
        votes, error = NO_VOTES, None
        try:
            votes = part() or NO_VOTES
        except Exception as problem:
            if not is_fault(problem):
                raise
            error = problem
        of_all = torch.tensor([error is not None, *votes], dtype=torch.int32)
        dist.all_reduce(of_all, dist.ReduceOp.MAX)
        failed, *heard = of_all.tolist()
        if failed:
            raise Left(str(error) if error is not None else "another rank of this unit lost a twin") from error
        return Votes(*map(bool, heard))

    def range_of(self, numbers: list[int]) -> tuple[list[int], list[int]]:
        """The lowest and the highest that any rank of the unit has for each."""
        if self.size == 1:
            return numbers, numbers
        both = torch.tensor([[-number for number in numbers], numbers])
        dist.all_reduce(both, dist.ReduceOp.MAX)
        return (-both[0]).tolist(), both[1].tolist()


class Twins(Groups):
    """Their group in a generation, which is gloo's. The default group is the unit's, and stays."""

    def __init__(self, backend: str, unit: Unit) -> None:
        super().__init__(backend)
        self._unit = unit

    def make_unit(self, file: str) -> None:
        """The default group, for the life of this process."""
        with self.watched(self._unit.size):
            dist.init_process_group(self._backend, store=dist.FileStore(file, self._unit.size), rank=self._unit.place,
                                    world_size=self._unit.size)
        self._require_epolls()
        self._epolls.clear()  # only twins are broken

    def make(self, store: dist.Store, rank: int, world_size: int) -> None:
        self.peers = _torch_private.gloo_group(store, rank, world_size, **self._timeout)
        self.votes = self.peers if world_size > 1 else None

    def forget(self) -> None:
        self.peers = self.votes = None

    def end(self) -> None:
        super().end()
        _torch_private.forget_groups()


def local(tensor: torch.Tensor) -> torch.Tensor:
    """What this rank holds of it."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def _buckets(tensors: Iterable[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """In their order, each of one type and device, and of MOST_BYTES or one tensor."""
    bucket: list[torch.Tensor] = []
    size = 0
    for tensor in tensors:
        bytes_here = tensor.numel() * tensor.element_size()
        alike = not bucket or (tensor.dtype, tensor.device) == (bucket[0].dtype, bucket[0].device)
        if bucket and (not alike or size + bytes_here > MOST_BYTES):
            yield bucket
            bucket, size = [], 0
        bucket.append(tensor)
        size += bytes_here
    if bucket:
        yield bucket


def average(group: Any, count: int, parameters: Iterable[torch.Tensor]) -> None:
    """Of gradients, over the `count` ranks of the group. All of them name the same parameters; one without a gradient counts
    with zeros."""
    gradients = []
    for parameter in parameters:
        if parameter.requires_grad:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            gradients.append(local(parameter.grad))
    if count == 1:
        return
    with torch.no_grad():
        for bucket in _buckets(gradients):
            flat = torch.cat([gradient.reshape(-1) for gradient in bucket])
            if flat.numel():
                group.allreduce([flat]).wait()
            flat /= count
            for gradient, mean in zip(bucket, flat.split([gradient.numel() for gradient in bucket])):
                gradient.copy_(mean.view_as(gradient))


def meet_by_environment(backend: str, size: int) -> tuple[Unit, Any]:
    """The unit, and the group of its twins, of a rank that has its place from the environment once and for all."""
    store, rank, world_size = next(iter(dist.rendezvous("env://")))
    check_unit(size, world_size, "a world of")
    number, place = divmod(rank, size)
    dist.init_process_group(backend, store=dist.PrefixStore(f"dtrun/unit{number}", store), rank=place, world_size=size)
    twins = _torch_private.gloo_group(dist.PrefixStore(f"dtrun/place{place}", store), number, world_size // size)
    return Unit(size, place), twins

"""State from one worker to another over the default group: a skeleton, and the tensors that it has places for. Nothing is
copied but what is not contiguous, or not on the CPU."""

from __future__ import annotations

import io
import pickle
from typing import Any

import torch
import torch.distributed as dist


class _Skeleton(pickle.Pickler):
    """Leaves the tensors out, in a list."""

    def __init__(self, file: io.BytesIO, tensors: list[torch.Tensor]) -> None:
        super().__init__(file)
        self._tensors = tensors

    def persistent_id(self, thing: Any) -> Any:
        if not isinstance(thing, torch.Tensor):
            return None
        self._tensors.append(thing.detach().cpu().contiguous())
        return len(self._tensors) - 1, thing.dtype, tuple(thing.shape)


class _Places(pickle.Unpickler):
    """Makes the tensors that are to be received."""

    def __init__(self, file: io.BytesIO, tensors: list[torch.Tensor]) -> None:
        super().__init__(file)
        self._tensors = tensors

    def persistent_load(self, mark: Any) -> torch.Tensor:
        number, dtype, shape = mark
        if number != len(self._tensors):
            raise RuntimeError("a state's tensors are out of order")
        self._tensors.append(torch.zeros(shape, dtype=dtype))
        return self._tensors[-1]


class _Filled(pickle.Unpickler):
    """The state itself: only now have the tensors their values, which an object may look at while it is made."""

    def __init__(self, file: io.BytesIO, tensors: list[torch.Tensor]) -> None:
        super().__init__(file)
        self._tensors = tensors

    def persistent_load(self, mark: Any) -> torch.Tensor:
        return self._tensors[mark[0]]


def send_state(state: Any, to: int) -> None:
    file, tensors = io.BytesIO(), []
    _Skeleton(file, tensors).dump(state)
    skeleton = torch.frombuffer(bytearray(file.getbuffer()), dtype=torch.uint8)
    dist.send(torch.tensor([len(skeleton)]), to)
    dist.send(skeleton, to)
    for tensor in tensors:
        if tensor.numel():
            dist.send(tensor, to)


def receive_state(source: int) -> Any:
    size = torch.zeros(1, dtype=torch.int64)
    dist.recv(size, source)
    skeleton = bytearray(int(size))
    dist.recv(torch.frombuffer(skeleton, dtype=torch.uint8), source)
    tensors: list[torch.Tensor] = []
    _Places(io.BytesIO(skeleton), tensors).load()
    for tensor in tensors:
        if tensor.numel():
            dist.recv(tensor, source)
    return _Filled(io.BytesIO(skeleton), tensors).load()

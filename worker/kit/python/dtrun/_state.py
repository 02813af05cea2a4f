"""State from one worker to another that holds the same: a skeleton, and the tensors that it has places for. Nothing is
copied but what is not contiguous, or not on the CPU. Of a DTensor goes what this rank holds; the other end has a mesh of
its own for it, at the same place among `meshes`."""

from __future__ import annotations

import io
import pickle
from typing import Any

import torch

from ._units import local


class _Skeleton(pickle.Pickler):
    """Leaves the tensors out, in a list."""

    def __init__(self, file: io.BytesIO, tensors: list[torch.Tensor], meshes: list[Any]) -> None:
        super().__init__(file)
        self._tensors, self._meshes = tensors, meshes

    def persistent_id(self, thing: Any) -> Any:
        if not isinstance(thing, torch.Tensor):
            return None
        whole = None
        if hasattr(thing, "device_mesh"):
            whole = self._meshes.index(thing.device_mesh), thing.placements, tuple(thing.shape), thing.stride()
        mine = local(thing.detach())
        self._tensors.append(mine.cpu().contiguous())
        return len(self._tensors) - 1, mine.dtype, tuple(mine.shape), whole


class _Places(pickle.Unpickler):
    """Makes the tensors that are to be received."""

    def __init__(self, file: io.BytesIO, tensors: list[torch.Tensor]) -> None:
        super().__init__(file)
        self._tensors = tensors

    def persistent_load(self, mark: Any) -> torch.Tensor:
        number, dtype, shape, _ = mark
        if number != len(self._tensors):
            raise RuntimeError("a state's tensors are out of order")
        self._tensors.append(torch.zeros(shape, dtype=dtype))
        return self._tensors[-1]


class _Filled(pickle.Unpickler):
    """The state itself: only now have the tensors their values, which an object may look at while it is made."""

    def __init__(self, file: io.BytesIO, tensors: list[torch.Tensor], meshes: list[Any]) -> None:
        super().__init__(file)
        self._tensors, self._meshes = tensors, meshes

    def persistent_load(self, mark: Any) -> torch.Tensor:
        number, _, _, whole = mark
        if whole is None:
            return self._tensors[number]
        from torch.distributed.tensor import DTensor

        mesh, placements, shape, stride = whole
        return DTensor.from_local(self._tensors[number].to(self._meshes[mesh].device_type), self._meshes[mesh], placements,
                                  run_check=False, shape=torch.Size(shape), stride=stride)


def send_state(state: Any, peers: Any, to: int, meshes: list[Any]) -> None:
    """To a rank of the group `peers`."""
    file, tensors = io.BytesIO(), []
    _Skeleton(file, tensors, meshes).dump(state)
    skeleton = torch.frombuffer(bytearray(file.getbuffer()), dtype=torch.uint8)
    for tensor in (torch.tensor([len(skeleton)]), skeleton, *tensors):
        if tensor.numel():
            peers.send([tensor], to, 0).wait()


def receive_state(peers: Any, source: int, meshes: list[Any]) -> Any:
    size = torch.zeros(1, dtype=torch.int64)
    peers.recv([size], source, 0).wait()
    skeleton = bytearray(int(size))
    tensors = [torch.frombuffer(skeleton, dtype=torch.uint8)]
    peers.recv(tensors, source, 0).wait()
    tensors.clear()
    _Places(io.BytesIO(skeleton), tensors).load()
    for tensor in tensors:
        if tensor.numel():
            peers.recv([tensor], source, 0).wait()
    return _Filled(io.BytesIO(skeleton), tensors, meshes).load()

"""State from one worker to another that holds the same: a skeleton, and the tensors that it has places for. Nothing is
copied but what is not contiguous, or not on the CPU. Of a DTensor goes what this rank holds; the other end has a mesh of
its own for it, at the same place among `meshes`.

Any process that reaches the port of PyTorch's group can speak there, and a pickle may call whatever it names. So a state is
made of tensors, numbers, text, containers, NumPy's arrays, what the receiver's own state is made of, and classes that
torch.serialization.add_safe_globals names."""

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


CONTAINERS = {("collections", name) for name in ("OrderedDict", "defaultdict", "deque", "Counter")} | {
    ("builtins", name) for name in ("set", "frozenset", "complex", "bytearray", "slice", "range")}
NUMPY = {(f"{module}.multiarray", name) for module in ("numpy.core", "numpy._core") for name in ("_reconstruct", "scalar")} | {
    ("numpy", "ndarray"), ("numpy", "dtype"), ("numpy._core.numeric", "_frombuffer"), ("numpy.core.numeric", "_frombuffer")}
PLACEMENTS = {(f"torch.distributed.{module}.placement_types", name) for module in ("tensor", "_tensor")
              for name in ("Shard", "Replicate", "Partial", "_StridedShard")}
KNOWN = CONTAINERS | NUMPY | PLACEMENTS | {("torch", "Size"), ("torch", "device"), ("_codecs", "encode")}
MOST_OF_SKELETON = 1 << 30  # bytes


class _Marks(pickle.Pickler):
    """A state without its tensors, of which nothing is copied."""

    def persistent_id(self, thing: Any) -> Any:
        return 0 if isinstance(thing, torch.Tensor) else None


class _Names(pickle.Unpickler):
    """Finds what a state of this process is made of."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.found: set[tuple[str, str]] = set()

    def persistent_load(self, mark: Any) -> torch.Tensor:
        return torch.zeros(0)

    def find_class(self, module: str, name: str) -> Any:
        self.found.add((module, name))
        return super().find_class(module, name)


def names_in(state: Any) -> set[tuple[str, str]]:
    """Modules and names of the classes, and of the functions that make them."""
    file = io.BytesIO()
    _Marks(file).dump(state)
    names = _Names(io.BytesIO(file.getbuffer()))
    names.load()
    return names.found


class _Careful(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, own: set[tuple[str, str]]) -> None:
        super().__init__(file)
        self._own = own

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in KNOWN or (module, name) in self._own or (module == "numpy.dtypes" and name.endswith("DType")):
            return super().find_class(module, name)
        constant = getattr(torch, name, None) if module == "torch" else None
        if isinstance(constant, (torch.dtype, torch.layout, torch.memory_format)):
            return constant
        for named in getattr(torch.serialization, "get_safe_globals", list)():
            if (getattr(named, "__module__", ""), getattr(named, "__qualname__", "")) == (module, name):
                return named
        raise SystemExit(f"dtrun: a peer's state has a {module}.{name}, and that of this worker has none: if it belongs there, "
                         "torch.serialization.add_safe_globals([…]) names it")


class _Places(_Careful):
    """Makes the tensors that are to be received."""

    def __init__(self, file: io.BytesIO, own: set[tuple[str, str]], tensors: list[torch.Tensor]) -> None:
        super().__init__(file, own)
        self._tensors = tensors

    def persistent_load(self, mark: Any) -> torch.Tensor:
        number, dtype, shape, _ = mark
        if number != len(self._tensors):
            raise RuntimeError("a state's tensors are out of order")
        self._tensors.append(torch.zeros(shape, dtype=dtype))
        return self._tensors[-1]


class _Filled(_Careful):
    """The state itself: only now have the tensors their values, which an object may look at while it is made."""

    def __init__(self, file: io.BytesIO, own: set[tuple[str, str]], tensors: list[torch.Tensor], meshes: list[Any]) -> None:
        super().__init__(file, own)
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


def receive_state(peers: Any, source: int, meshes: list[Any], own: Any) -> Any:
    """`own`: the state of this worker, which it takes the place of."""
    names = names_in(own)
    size = torch.zeros(1, dtype=torch.int64)
    peers.recv([size], source, 0).wait()
    if not 0 < int(size) <= MOST_OF_SKELETON:
        raise SystemExit(f"dtrun: a peer's state has {int(size)} bytes beside its tensors")
    skeleton = bytearray(int(size))
    tensors = [torch.frombuffer(skeleton, dtype=torch.uint8)]
    peers.recv(tensors, source, 0).wait()
    tensors.clear()
    _Places(io.BytesIO(skeleton), names, tensors).load()
    for tensor in tensors:
        if tensor.numel():
            peers.recv([tensor], source, 0).wait()
    return _Filled(io.BytesIO(skeleton), names, tensors, meshes).load()

"""State from one worker to another over gloo: what it may be made of. Exit code 0: as it should be."""

import os
import pathlib
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "worker/kit/python")]
import torch
import torch.distributed as dist

from dtrun._state import receive_state, send_state


class Own:
    """A class of the script's."""

    def __init__(self, value):
        self.value = value


class Call:
    """Is unpickled by a call of anything."""

    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call


folder = pathlib.Path(sys.argv[1])
optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.ones(3))])
optimizer.param_groups[0]["params"][0].sum().backward()
optimizer.step()
PLAIN = {"model": torch.nn.BatchNorm1d(2).state_dict(), "optimizer": optimizer.state_dict(), "random": torch.get_rng_state(),
         "more": [None, True, 3, 2.5, 1j, "text", b"bytes", {1, 2}, (torch.float16, torch.device("cpu"), torch.Size([1]), slice(1, 2))]}
ATTACKS = [Call(os.system, (f"touch {folder}/called",)), Call(eval, ("1",)), Call(torch.load, ("x",)), Call(getattr, ("", "join"))]


def same(one, other):
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


def main(rank):
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    peers = dist.distributed_c10d._get_default_group()
    if rank == 0:
        for state in (PLAIN, {"a": Own(7)}, *({"a": attack} for attack in ATTACKS), {"a": Own(7)}):
            send_state(state, peers, 1, [])
            dist.barrier()
        return
    got = receive_state(peers, 0, [], {})
    assert same(PLAIN, got), got
    dist.barrier()
    assert receive_state(peers, 0, [], {"other": Own(1)})["a"].value == 7
    dist.barrier()
    for name in ("posix.system", "builtins.eval", "torch.serialization.load", "builtins.getattr", "__main__.Own"):
        try:
            receive_state(peers, 0, [], {"other": 1})
            raise AssertionError(f"{name} was taken")
        except SystemExit as refused:
            assert f"a peer's state has a {name}," in str(refused), refused
        dist.barrier()
    assert not (folder / "called").exists()


child = os.fork()
main(0 if child else 1)
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
os._exit(0)

"""Each private name of torch that the worker kit uses, on the torch of this Python: two processes over gloo. Exit code 0: all of
them do what the kit takes them for."""

import os
import pathlib
import select
import socket
import sys
import tempfile
import threading
import warnings

warnings.filterwarnings("ignore")
ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "worker/kit/python"), str(ROOT / "tests/support")]
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

from clock import eventually
from dtrun import _torch_private as private
from dtrun._groups import Groups
from dtrun._units import Twins, Unit


def check(what, holds):
    if not holds:
        print(f"torch {torch.__version__}: {what}", flush=True)
        os._exit(1)


def model():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(40, 40), torch.nn.Linear(40, 1))


def gradient(wrapper, rank):
    wrapper.zero_grad()
    wrapper(torch.full((3, 40), rank + 1.0)).sum().backward()
    return torch.cat([p.grad.flatten() for p in wrapper.parameters()])


def breaks(groups, rank, all_reduce):
    """Rank 0 waits in an all-reduce to which rank 1 does not come, and another thread wakes it."""
    if rank == 1:  # it goes once the other one is awake
        check("nobody wakes who waits in gloo", eventually(lambda: select.select([awake[0]], [], [], 0)[0], 20))
        os.read(awake[0], 1)
        return
    threading.Timer(0.3, groups.break_all).start()
    try:
        all_reduce()
        check("a broken all-reduce ends without an error", False)
    except Exception as error:
        check(f"{error!r} is not known as a peer's fault", private.is_peers_fault(error))
    os.write(awake[1], b"!")


def stands_beside(folder, number, rank):
    """A group of gloo's own beside the default one: it computes, and is broken as that is."""
    twins = Twins("gloo", Unit(1, 0))
    with twins.watched(2):
        twins.make(dist.FileStore(os.path.join(folder, f"beside{number}"), 2), rank, 2)
    ones = torch.ones(5)
    twins.peers.allreduce([ones]).wait()
    (twins.peers.send([ones], 1, 0) if rank == 0 else twins.peers.recv([ones], 0, 0)).wait()
    check("a group beside the default one adds up wrongly", bool((ones == 2).all()))
    breaks(twins, rank, lambda: twins.peers.allreduce([ones]).wait())
    twins.destroy()


def wakes_who_connects():
    """To a host that does not answer: a listener whose queue is full drops what comes."""
    with socket.socket() as deaf, select.epoll() as watched:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        callers = [socket.socket() for _ in range(4)]
        for caller in callers:
            caller.setblocking(False)
            caller.connect_ex(deaf.getsockname())
        watched.register(callers[-1])
        check("a connection to a full queue is made", not watched.poll(0.2))
        private.connect_or_give_up(watched.fileno(), 2)
        check("nobody wakes who connects", any(event & select.EPOLLHUP for _, event in watched.poll(20)))
        check("who connects gets no error", callers[-1].getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0)
        for caller in callers:
            caller.close()


def main(rank, folder):
    wakes_who_connects()
    check(f"there is no {private.missing()}", not private.missing())
    groups = Groups("gloo")
    groups.make_alone()
    check("gloo's epoll is not found", groups.breakable)
    old = DDP(model())  # made alone, as above a loop
    gradient(old, rank)
    for generation in range(3):
        groups.destroy()
        if rank == 1:  # a newcomer, whose wrapper is a fresh one
            groups.make_alone()
            old = DDP(model())
            groups.destroy()
        with groups.watched(2):
            groups.make(dist.FileStore(os.path.join(folder, str(generation)), 2), rank, 2)
        if generation == 0:  # a function of job.on_regroup waits
            groups.destroy()
            with groups.watched(2):
                groups.make(dist.FileStore(os.path.join(folder, "hook"), 2), rank, 2)
                breaks(groups, rank, lambda: dist.all_reduce(torch.ones(5)))
            groups.destroy()
            with groups.watched(2):
                groups.make(dist.FileStore(os.path.join(folder, "again"), 2), rank, 2)
        private.remake_wrapper(old)
        mine = gradient(old, rank)
        whole = (gradient(model(), 0) + gradient(model(), 1)) / 2
        check("a wrapper made anew beside a fresh one has wrong gradients", torch.allclose(mine, whole, rtol=1e-5))
        before = private.collectives_begun()
        dist.all_reduce(torch.ones(5))
        check("the number of collectives is not counted", private.collectives_begun() == before + 1)
        stands_beside(folder, generation, rank)
        breaks(groups, rank, lambda: dist.all_reduce(torch.ones(5)))
    optimizer, called = torch.optim.SGD(old.parameters(), lr=0.1), []
    private.before_update(optimizer, lambda: called.append(1))
    torch.optim.lr_scheduler.LinearLR(optimizer)
    optimizer.step()
    check("the optimizer's hook is called once", called == [1])
    groups.destroy()
    os._exit(0)


if __name__ == "__main__":
    awake = os.pipe()
    with tempfile.TemporaryDirectory() as scratch:
        peer = os.fork()
        if peer == 0:
            main(1, scratch)
        helper = os.fork()
        if helper == 0:
            main(0, scratch)
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in (peer, helper)]
    sys.exit(max(codes, key=abs))

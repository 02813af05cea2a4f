"""Everything that this package takes of torch beyond its documented names, one function each. tests/kit runs all of them
on each version of torch that it is given. `missing()` says what this torch lacks, before anything relies on it."""

from __future__ import annotations

import os
import socket
import types
from datetime import timedelta
from typing import Any, Iterator

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

# Texts of gloo's and NCCL's errors when a peer is gone: older versions of torch have no type for them.
PEER_GONE = ("gloo/transport", "Connection closed by peer", "Connection reset by peer", "NCCL", "ncclComm", "Broken pipe",
             "Application timeout caused pair closure", "Timed out waiting", "Socket closed", "Socket Timeout")


def missing() -> str:
    """What is not as this package needs it, to the point that workers must not outlive their peers; mostly empty."""
    for name in ("__setstate__", "__getstate__"):
        if not hasattr(DistributedDataParallel, name):
            return f"DistributedDataParallel.{name}"
    if not hasattr(dist, "Store"):
        return "torch.distributed"
    return ""


def is_peers_fault(error: BaseException) -> bool:
    """Whether a collective broke, rather than the script."""
    kind = getattr(dist, "DistError", None)  # since 2.1
    if kind is not None and isinstance(error, kind):
        return True
    return isinstance(error, RuntimeError) and any(text in str(error) for text in PEER_GONE)


def gloo_group(store: dist.Store, rank: int, size: int, timeout: timedelta = timedelta(minutes=30)) -> Any:
    """A group beside the default one, with ranks that are not in that. It has the methods of ProcessGroup."""
    return dist.ProcessGroupGloo(store, rank, size, timeout)


def remake_wrapper(wrapper: DistributedDataParallel) -> None:
    """A reducer on the new default group, as for a wrapper that was pickled. (_update_process_group keeps the old one's
    layout of buckets, and a newcomer has another: in their first step they would add up gradients of different
    parameters, and nothing would tell.) Raises if this torch does it otherwise."""
    before = wrapper.reducer
    wrapper.process_group = dist.group.WORLD
    wrapper.__setstate__(wrapper.__getstate__())
    if wrapper.reducer is before or wrapper.process_group is not dist.group.WORLD:
        raise NotImplementedError(f"torch {torch.__version__} does not remake the reducer of a wrapper in __setstate__")


def collectives_begun() -> int | None:
    """Of the default group, by this rank: who has begun fewer than its peers is waited for. None: this torch does not
    tell."""
    try:
        return int(dist.group.WORLD._get_sequence_number_for_group())
    except (AttributeError, RuntimeError, TypeError):
        return None


def before_update(optimizer: torch.optim.Optimizer, hook) -> None:
    """Has `hook()` called before each update of the optimizer."""
    if hasattr(optimizer, "register_step_pre_hook"):  # since 2.0
        optimizer.register_step_pre_hook(lambda *_: hook())
        return
    step = optimizer.step

    def step_with_hook(_, *args, **kwargs):
        hook()
        return step(*args, **kwargs)

    if hasattr(step, "_with_counter"):  # a scheduler's, which warns if it is gone
        step_with_hook._with_counter = True
    optimizer.step = types.MethodType(step_with_hook, optimizer)


def epolls() -> set[int]:
    """The epoll descriptors of this process. Gloo watches the connections of a group by one of its own."""
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{fd}") == "anon_inode:[eventpoll]":
                found.add(int(fd))
        except OSError:
            pass
    return found


def shut_connections(epoll: int) -> int:
    """Shuts the sockets in an epoll down: who waits for one of them, in gloo, gets an exception within milliseconds. Gloo's
    own abort(), shutdown() and destroy wake nobody. From any thread; the number of sockets."""
    count = 0
    for connection in _connections(epoll):
        try:
            connection.shutdown(socket.SHUT_RDWR)
            count += 1
        except OSError:
            pass
    return count


def _connections(epoll: int) -> Iterator[socket.socket]:
    try:
        with open(f"/proc/self/fdinfo/{epoll}") as lines:
            fds = [int(line.split()[1]) for line in lines if line.startswith("tfd:")]
    except OSError:
        return
    for fd in fds:
        try:
            number = os.dup(fd)
        except OSError:
            continue
        try:
            copy = socket.socket(fileno=number)
        except OSError:  # a pipe or an eventfd
            os.close(number)
            continue
        with copy:
            try:
                # A listening one is left alone: gloo ends the process if its accept() fails.
                if not copy.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    yield copy
            except OSError:
                pass


def abort_nccl() -> None:
    """Has NCCL's kernels end and its waiters wake up. Blocks, up to seconds; from any thread."""
    for name in ("_abort_process_group", "abort_process_group"):
        abort = getattr(dist.distributed_c10d, name, None)
        if abort is not None:
            return abort()

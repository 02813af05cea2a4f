"""Everything that this package takes of torch beyond its documented names, one function each. tests/kit runs all of them
on each version of torch that it is given. `missing()` says what this torch lacks, before anything relies on it."""

from __future__ import annotations

import os
import socket
import sys
import types
from datetime import timedelta
from typing import Any, Iterator

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

# Texts of gloo's and NCCL's errors when a peer is gone: older versions of torch have no type for them.
PEER_GONE = ("gloo/transport", "Connection closed by peer", "Connection reset by peer", "NCCL", "ncclComm", "Broken pipe",
             "Application timeout caused pair closure", "Timed out waiting", "Socket closed", "Socket Timeout")

TCP_SYN_SENT, TCP_LISTEN = 2, 10  # of linux/tcp.h's states


def missing() -> str:
    """What is not as this package needs it, to the point that workers must not outlive their peers; mostly empty."""
    for name in ("__setstate__", "__getstate__"):
        if not hasattr(DistributedDataParallel, name):
            return f"DistributedDataParallel.{name}"
    if not hasattr(dist, "Store"):
        return "torch.distributed"
    if not hasattr(dist.distributed_c10d, "_group_count"):
        return "torch.distributed.distributed_c10d._group_count"
    return ""


def is_peers_fault(error: BaseException) -> bool:
    """Whether a collective broke, rather than the script."""
    kind = getattr(dist, "DistError", None)  # since 2.1
    if kind is not None and isinstance(error, kind):
        return True
    return isinstance(error, RuntimeError) and any(text in str(error) for text in PEER_GONE)


def forget_groups() -> None:
    """The default group and those made on it, also where the making of the default one broke. By the number of groups made
    so far torch names the keys by which ranks meet. destroy_process_group sets it back, but only if there is a default group:
    else this rank would wait for keys that its new peers do not set, and they for its own."""
    if dist.is_initialized():
        dist.destroy_process_group()
    dist.distributed_c10d._group_count = 0


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
    own abort(), shutdown() and destroy wake nobody. For a group that is whole (connect_or_give_up has the other). From any
    thread; the number of sockets."""
    count = 0
    for connection, state in _sockets(epoll):
        if state == TCP_LISTEN:  # left alone: gloo ends the process if its accept() fails
            continue
        try:
            connection.shutdown(socket.SHUT_RDWR)
            count += 1
        except OSError:
            pass
    return count


def connect_or_give_up(epoll: int, ranks: int) -> None:
    """Wakes gloo while it makes a group of so many ranks, in which it waits for each peer in turn. For some of them it waits
    to be connected to, and has no socket yet by which to wake it: so each comes now, and hangs up. (A peer says 8 bytes, its
    number at this rank; before torch 2.1 each had a listening socket to itself.) Connections that stand are left alone: gloo
    ends the process if one of them has no peer any more when it first looks. From any thread."""
    for connection, state in _sockets(epoll):
        try:
            if state == TCP_SYN_SENT:
                connection.shutdown(socket.SHUT_RDWR)
            for number in range(ranks) if state == TCP_LISTEN else ():
                with socket.socket(connection.family, socket.SOCK_STREAM) as caller:
                    caller.settimeout(0.1)  # the queue of one that nobody accepts from is full
                    caller.connect(connection.getsockname())
                    caller.sendall(number.to_bytes(8, sys.byteorder))
        except OSError:
            pass


def _sockets(epoll: int) -> Iterator[tuple[socket.socket, int]]:
    """Copies of the TCP sockets that an epoll watches, with their states."""
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
                state = copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
            except OSError:
                continue
            yield copy, state


def abort_nccl() -> None:
    """Has NCCL's kernels end and its waiters wake up. Blocks, up to seconds; from any thread."""
    for name in ("_abort_process_group", "abort_process_group"):
        abort = getattr(dist.distributed_c10d, name, None)
        if abort is not None:
            return abort()

"""Process groups that can be broken and made again in a living process."""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Iterator

import torch
import torch.distributed as dist

from . import _torch_private

# Where gloo's connections cannot be found, who waits in a collective that broke is woken by the group's timeout.
SHORT_TIMEOUT = timedelta(seconds=60)
CONNECTED_S = 0.5  # gloo has looked at a new connection by then, and may find it shut


class Groups:
    """The default group of a generation, and those that are made within `watched()`."""

    def __init__(self, backend: str) -> None:
        self._backend = "cpu:gloo,cuda:nccl" if backend == "nccl" else backend  # state is sent on the CPU
        self._lock = threading.Lock()  # guards the next four
        self._epolls: set[int] = set()
        self._before: set[int] | None = None  # while groups are being made: what was there before
        self._broken = False  # the groups that are being made
        self._ranks = 1       # of these, at most
        self._timeout: dict[str, timedelta] = {}
        self.peers: Any = None  # the group of those who hold the same state
        self.votes: Any = None  # the same ranks, for what is no part of the script's steps; None: there is but one

    def make(self, store: dist.Store, rank: int, world_size: int) -> None:
        """The default group. Within watched()."""
        if world_size > 1:
            self.votes = _torch_private.gloo_group(dist.PrefixStore("dtrun/votes", store), rank, world_size, **self._timeout)
        hook = sys.excepthook  # torch wraps it each time
        dist.init_process_group(self._backend, store=store, rank=rank, world_size=world_size, **self._timeout)
        sys.excepthook = hook
        self.peers = dist.group.WORLD

    def make_alone(self) -> None:
        """That of one rank, for the lines above the loop."""
        with self.watched(1):
            self.make(dist.HashStore(), 0, 1)
        self._require_epolls()

    def _require_epolls(self) -> None:
        if "gloo" in self._backend and not self._epolls:
            self._timeout = {"timeout": SHORT_TIMEOUT}

    @property
    def breakable(self) -> bool:
        return not self._timeout

    @contextmanager
    def watched(self, ranks: int) -> Iterator[None]:
        """What is made within it, of at most so many ranks, can be broken, also before it is whole."""
        with self._lock:
            self._before, self._ranks, self._broken = _torch_private.epolls(), ranks, False
        try:
            yield
        finally:
            with self._lock:
                self._epolls |= self._unfinished()
                self._before = None
                if self._broken:
                    self._shut_all()

    def _unfinished(self) -> set[int]:
        return set() if self._before is None else _torch_private.epolls() - self._before

    def _shut_all(self) -> None:
        for epoll in self._epolls:
            _torch_private.shut_connections(epoll)

    def break_all(self) -> None:
        """From any thread: whoever waits in a collective gets an exception, here and at the peers."""
        with self._lock:
            self._shut_all()
            if self._before is not None and not self._broken:
                self._broken = True
                threading.Thread(target=self._break_unfinished, args=(self._before,), daemon=True, name="dtrun-break").start()
        if torch.cuda.is_initialized():
            threading.Thread(target=_torch_private.abort_nccl, daemon=True, name="dtrun-abort").start()

    def _break_unfinished(self, before: set[int]) -> None:
        """Until the making of groups has ended: connections, and groups, come one after the other. What stands by then is
        shut as well: job.on_regroup's functions may wait in a collective of a group that is whole."""
        begun = time.monotonic()
        while True:
            with self._lock:
                if self._before is not before:
                    return
                for epoll in self._unfinished():
                    _torch_private.connect_or_give_up(epoll, self._ranks)
                    if time.monotonic() - begun > CONNECTED_S:
                        _torch_private.shut_connections(epoll)
            time.sleep(0.05)

    def destroy(self) -> None:
        """First broken: DDP's reducer holds the old group, and a peer would wait for its sockets."""
        self.break_all()
        with self._lock:
            self._epolls.clear()
        self.forget()

    def forget(self) -> None:
        self.peers = self.votes = None
        _torch_private.forget_groups()

    def end(self) -> None:
        """Before the process does: else a thread of gloo may end it with SIGABRT."""
        self.destroy()


def choose_interface(address: str) -> None:
    """Has gloo listen on the interface with this address, the one by which the agents reach each other, unless the user has
    chosen one. IPv4; else gloo goes by the host's name."""
    import fcntl
    import socket
    import struct

    if not address or "GLOO_SOCKET_IFNAME" in os.environ:
        return
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            try:
                answer: Any = fcntl.ioctl(any_socket, 0x8915, struct.pack("256s", name.encode()[:15]))  # SIOCGIFADDR
            except OSError:
                continue
            if socket.inet_ntoa(answer[20:24]) == address:
                os.environ["GLOO_SOCKET_IFNAME"] = name
                return

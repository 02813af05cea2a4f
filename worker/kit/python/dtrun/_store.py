"""torch's store on top of the agent's: no port, no host that must live, and empty in each generation."""

from __future__ import annotations

import time
from datetime import timedelta

import torch.distributed as dist

from ._control import Agent

SLICE_S = 60.0  # of one request
PEERS_S = 1800.0  # a peer loads for so long at most; one that died is told of before, by the order to leave


class AgentStore(dist.Store):
    """What process groups need of a store to be made: set, get and wait; and a sum over the ranks, by which versions of torch
    before 2.1 see that all have come."""

    def __init__(self, agent: Agent, rank: int = 0, world_size: int = 1) -> None:
        super().__init__()
        self._agent, self._rank, self._world_size = agent, rank, world_size
        self._added: dict[str, int] = {}  # by this rank

    def set(self, key: str, value: str | bytes) -> None:
        self._agent.set(key, value.encode() if isinstance(value, str) else bytes(value))

    def get(self, key: str) -> bytes:
        return self._wait(key, PEERS_S)

    def wait(self, keys: list[str], timeout: timedelta = timedelta(seconds=PEERS_S)) -> None:
        for key in keys:
            self._wait(key, timeout.total_seconds())

    def _wait(self, key: str, seconds: float) -> bytes:
        end = time.monotonic() + seconds
        while True:
            begun = time.monotonic()
            try:
                return self._agent.get(key, max(0.0, min(SLICE_S, end - begun)))
            except TimeoutError:
                if time.monotonic() >= end or time.monotonic() - begun < 1:  # or the store is lost
                    raise

    def check(self, keys: list[str]) -> bool:
        try:
            for key in keys:
                self._agent.get(key, 0.0)
        except TimeoutError:
            return False
        return True

    def add(self, key: str, amount: int) -> int:
        """The sum so far. Two ranks may be told the same: it gives out no tickets."""
        if amount:
            self._added[key] = self._added.get(key, 0) + amount
            self.set(f"{key}/{self._rank}", str(self._added[key]))
        return sum(self._of_rank(f"{key}/{rank}") for rank in range(self._world_size))

    def _of_rank(self, key: str) -> int:
        try:
            return int(self._agent.get(key, 0.0))
        except TimeoutError:
            return 0

    def _cannot(self, *_: object) -> int:
        raise NotImplementedError("dtrun's store has set, get, wait, check and add; use one of your own (TCPStore) for more")

    compare_set = delete_key = num_keys = _cannot

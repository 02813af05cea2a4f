"""torch's store on top of the agent's: no port, no host that must live, and empty in each generation."""

from __future__ import annotations

import time
from datetime import timedelta

import torch.distributed as dist

from ._control import Agent

SLICE_S = 60.0  # of one request
PEERS_S = 1800.0  # a peer loads for so long at most; one that died is told of before, by the order to leave


class AgentStore(dist.Store):
    """What process groups need of a store to be made: set, get and wait. It counts nothing."""

    def __init__(self, agent: Agent) -> None:
        super().__init__()
        self._agent = agent

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

    def _cannot(self, *_: object) -> int:
        raise NotImplementedError("dtrun's store has set, get, wait and check; use one of your own (TCPStore) to count")

    add = compare_set = delete_key = num_keys = _cannot

"""The last step of a generation, when it ends so that nothing is done again."""

from __future__ import annotations

import threading

from ._control import Agent, Left

PEERS_S = 60.0  # they are told at the same time, but one may be computing


class LastStep:
    """Who was told says which step it has begun; the greatest of these is the last, so nobody waits in a step that another
    leaves out."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._lock = threading.Lock()  # guards the next four: of this generation
        self._rank, self._world_size = 0, 1
        self._entered = -1  # the newest step whose block has begun
        self._posted = False
        self._last: int | None = None  # once all have said it

    def begin_generation(self, rank: int, world_size: int) -> None:
        """By the thread that reads the order to start: the one that waits for it may be late for the next order."""
        with self._lock:
            self._rank, self._world_size = rank, world_size
            self._last, self._posted, self._entered = None, False, -1

    def asked(self) -> None:
        """By the thread that reads orders; the store's answer comes to the same, so another one asks."""
        with self._lock:
            if self._posted:
                return
            self._posted = True
            said = self._entered, self._rank
        threading.Thread(target=self._post, args=said, daemon=True, name="dtrun-pause").start()

    def may_enter(self, step: int) -> bool:
        """False: the generation ends before this step. Who cannot agree leaves at once: a step is done again, none is lost."""
        with self._lock:
            posted, ranks = self._posted, range(self._world_size)
            if not posted:
                self._entered = step
        if posted and self._last is None:
            try:
                self._last = max(int(self._agent.get(f"dtrun/pause/{rank}", PEERS_S)) for rank in ranks)
            except (Left, TimeoutError):
                return False
        return self._last is None or step <= self._last

    def _post(self, entered: int, rank: int) -> None:
        try:
            self._agent.set(f"dtrun/pause/{rank}", str(entered).encode())
        except (Left, TimeoutError, OSError):
            pass


class AgreedStep:
    """With units, which agree in each step anyway: the first one at whose end any rank says that it was told is the last."""

    def __init__(self) -> None:
        self.told = self.over = False

    def begin_generation(self, rank: int, world_size: int) -> None:
        self.told = self.over = False

    def asked(self) -> None:
        self.told = True

    def may_enter(self, step: int) -> bool:
        return not self.over

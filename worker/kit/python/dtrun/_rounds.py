"""What ranks tell each other once in each step, before its gradients are used: what each has done in it, and whether it was told
to leave. So all leave after the same step, and who does something else than its peers is known by name."""

from __future__ import annotations

import json
import sys
import threading
from typing import Any, Callable

import torch

from ._agreement import Did, at_fault, difference, waits_in_vain
from ._control import Agent, Left
from ._units import Votes

PAUSE, LEAVES, STOP = 1, 2, 4  # told to leave the generation; with its node, for good; and to end the loop
WAITING = ("/torch/distributed/", "/torch/autograd/", "/torch/nn/parallel/", "/torch/_tensor.py")  # a collective's caller


class StepError(RuntimeError):
    """A rank broke a rule of steps, as it would again."""


class Rounds:
    def __init__(self, agent: Agent, break_all: Callable[[], None]) -> None:
        self._agent, self._break_all = agent, break_all
        self._lock = threading.Lock()  # guards the next five: of this generation
        self._generation, self._rank, self._world_size = 0, 0, 1
        self._told = 0
        self._verdict: tuple[list[int], str] | None = None
        self._usual: Did | None = None  # in the last step with an update
        self._now: Did | None = None    # while this rank votes
        self._looked: tuple[Did, bool] | None = None
        self._posted: Did | None = None
        self._looks = threading.Lock()  # held by the thread that does

    def begin_generation(self, rank: int, world_size: int) -> None:
        """By the thread that reads the order to start: the one that waits for it may be late for the next order."""
        with self._lock:
            self._generation, self._rank, self._world_size = self._generation + 1, rank, world_size
            self._told, self._verdict, self._posted = 0, None, None

    def asked(self, leaves: bool) -> None:
        """By the same thread."""
        self._told = PAUSE | (LEAVES if leaves else 0)

    @property
    def voting(self) -> bool:
        return self._now is not None

    def vote(self, peers: Any, did: Did, stop: bool) -> Votes:
        """Says what this rank did, and hears it of all. Raises StepError if this rank does something else than the others, and
        Left if another one does."""
        mine = [did.step, did.updates, did.collectives, self._told | (STOP if stop else 0)]
        all_said = [mine]
        if peers is not None:
            everyone = [torch.zeros(len(mine), dtype=torch.int64) for _ in range(peers.size())]
            self._now = did
            try:
                peers.allgather([everyone], [torch.tensor(mine, dtype=torch.int64)]).wait()
            finally:
                self._now = None
            all_said = [one.tolist() for one in everyone]
        dids = [Did(step, True, bool(updates), collectives) for step, updates, collectives, _ in all_said]
        if culprits := at_fault(dids, self._usual):
            self._decide(self._generation, culprits, difference(dids, culprits))
            self.complain(did.step)
            raise Left("another rank does something else in this step")
        self._usual = did if did.updates else self._usual
        told = [votes for *_, votes in all_said]
        return Votes(any(votes & PAUSE for votes in told), any(votes & STOP for votes in told) or all(votes & LEAVES for votes in told))

    def complain(self, step: int) -> None:
        """Raises StepError if this rank was found to do something else in the step than its peers, here or by one of them, which
        has then broken what this rank waited for."""
        with self._lock:
            verdict, rank, several = self._verdict, self._rank, self._world_size > 1
        if verdict is None and several:
            try:
                verdict = tuple(json.loads(self._agent.get(f"dtrun/verdict/{step}", 0.0)))
            except (Left, TimeoutError, OSError):
                return
        if verdict is not None and rank in verdict[0]:
            raise StepError(verdict[1])

    def _decide(self, generation: int, culprits: list[int], text: str) -> bool:
        """False: that generation is over."""
        with self._lock:
            if generation == self._generation:
                self._verdict = culprits, text
            return generation == self._generation

    # ---- ranks that wait for each other in different places

    def look(self, in_block: Did | None) -> None:
        """Every moment, by the thread that reports. Who stands still says so in the store, and who waits in a block looks at the
        others there: if all stand, and one has ended its block after fewer collectives, this one waits for ever."""
        now = self._now or in_block
        stands = now is not None and (now.ended or _waits())
        before, self._looked = self._looked, (now, stands) if now is not None else None
        if not stands or before != self._looked or self._world_size == 1 or not self._looks.acquire(blocking=False):
            return
        threading.Thread(target=self._compare, args=(now,), daemon=True, name="dtrun-look").start()

    def _compare(self, now: Did) -> None:
        try:
            with self._lock:
                generation, rank, ranks = self._generation, self._rank, range(self._world_size)
            stands, verdict = f"dtrun/stands/{now.step}/", f"dtrun/verdict/{now.step}"
            if self._posted != now:
                self._agent.set(f"{stands}{rank}", json.dumps(now).encode())
                self._posted = now
            if now.ended:
                culprits, text = json.loads(self._agent.get(verdict, 0.0))
            else:
                dids = [now if other == rank else Did(*json.loads(self._agent.get(f"{stands}{other}", 0.0))) for other in ranks]
                culprits = at_fault(dids, self._usual) if waits_in_vain(now, dids) else []
                text = difference(dids, culprits) if culprits else ""
                if culprits:
                    self._agent.set(verdict, json.dumps([culprits, text]).encode())
            if culprits and self._decide(generation, culprits, text):
                self._break_all()
        except (Left, TimeoutError, OSError):
            pass  # not all stand still, or none has found anything
        finally:
            self._looks.release()


def _waits() -> bool:
    """Whether the script may be in a collective, as far as its place tells."""
    frame = sys._current_frames().get(threading.main_thread().ident)
    while frame is not None:
        if any(part in frame.f_code.co_filename for part in WAITING):
            return True
        frame = frame.f_back
    return False

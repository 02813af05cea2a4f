"""What workers decide alike, from what all of them say: the state that a generation begins with, and whether all did the same in
a step. No torch here."""

from __future__ import annotations

import collections
from typing import NamedTuple

NOTHING, TORN = -1, -2  # in place of the steps done by a state: there is none, or only a part of one


def held(done: int | None, torn: bool) -> int:
    """By one worker. What it has loaded does not count: the job may be further."""
    return (TORN if torn else NOTHING) if done is None else done


def held_by_units(lowest: list[int], highest: list[int]) -> list[int]:
    """By each unit, of whose workers one holds the least and one the most: they hold a state together, or none."""
    return [least if least == most else TORN for least, most in zip(lowest, highest)]


def transfers(steps: list[int], loaded: list[int]) -> tuple[int, list[tuple[int, int]]]:
    """All go on from the furthest step that any of them holds; who is behind is sent it by one who is there: the pairs of
    source and receiver. Where nobody holds any, from the furthest that anyone has loaded; and where that is nothing, from the
    first one's initial values, as DDP would have it. TORN: a state is there, but nobody has it as a whole."""
    furthest = max(steps)
    if furthest < 0 and TORN in steps:
        return TORN, []
    if furthest < 0:
        furthest, steps = max(loaded), loaded
    sources = [number for number, step in enumerate(steps) if step == furthest] if furthest > 0 else [steps.index(furthest)]
    behind = [number for number in range(len(steps)) if number not in sources]
    return furthest, [(sources[i % len(sources)], number) for i, number in enumerate(behind)]


class Did(NamedTuple):
    """What a rank says of its part in a step, which it has ended or, where it hangs, is in."""
    step: int
    ended: bool       # its block has come to the first update of an optimizer, or to its end without one
    updates: bool     # the former
    collectives: int  # begun in the block, of the default group; messages between two ranks are counted too. -1: unknown

    def text(self, rank: int) -> str:
        where = "updates" if self.updates else "has left its block without optimizer.step()" if self.ended else "is in its block"
        return f"rank {rank} {where}" + (f" after {self.collectives} collectives" if self.collectives >= 0 else "")


def waits_in_vain(mine: Did, dids: list[Did]) -> bool:
    """Whether a rank that waits in its block has begun a collective which another one has ended that step without."""
    ended = [did.collectives for did in dids if did.ended]
    return not mine.ended and bool(ended) and 0 <= min(ended) < mine.collectives


def at_fault(dids: list[Did], usual: Did | None) -> list[int]:
    """The ranks whose part in the step is another than that of the others: less than half of them, else those who do not do as in
    the last step with an update (`usual`), else those who did less. Empty: all did the same."""
    parts = [(did.ended, did.updates) for did in dids]
    (most, count), *_ = collections.Counter(parts).most_common()
    if count == len(dids):
        return []
    if 2 * count > len(dids):
        return [rank for rank, part in enumerate(parts) if part != most]
    if usual is not None:
        odd = [rank for rank, did in enumerate(dids)
               if (did.ended and did.updates != usual.updates) or did.collectives > usual.collectives >= 0]
        if 0 < len(odd) < len(dids):
            return odd
    least = min((did.updates, did.collectives) for did in dids if did.ended)
    return [rank for rank, did in enumerate(dids) if did.ended and (did.updates, did.collectives) == least]


def difference(dids: list[Did], culprits: list[int]) -> str:
    """For people."""
    other = next((rank for rank in range(len(dids)) if rank not in culprits), culprits[-1])
    named = ", ".join(dids[rank].text(rank) for rank in [*culprits[:4], other])
    return (f"the ranks do different things in step {dids[other].step}: {named}. All ranks do the same in each step: one that "
            "has nothing to learn from a batch computes a loss of 0; job.stop() ends the loop on all of them")

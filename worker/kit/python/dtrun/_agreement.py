"""What a generation begins with: every worker decides it alike, from what all of them hold. No torch here."""

from __future__ import annotations

NOTHING, TORN = -1, -2  # in place of the steps done by a state: there is none, or only a part of one


def held(done: int | None, torn: bool) -> int:
    """By one worker."""
    return (TORN if torn else NOTHING) if done is None else done


def held_by_units(lowest: list[int], highest: list[int]) -> list[int]:
    """By each unit, of whose workers one holds the least and one the most: they hold a state together, or none."""
    return [least if least == most else TORN for least, most in zip(lowest, highest)]


def transfers(steps: list[int]) -> tuple[int, list[tuple[int, int]]]:
    """All go on from the furthest step that any of them holds; who is behind is sent it by one who is there: the pairs of
    source and receiver. Where nobody has trained yet, from the first one's initial values, as DDP would have it. TORN:
    nobody holds a whole state."""
    furthest = max(steps)
    if furthest < 0 and TORN in steps:
        return TORN, []
    sources = [number for number, step in enumerate(steps) if step == furthest] if furthest >= 0 else [0]
    behind = [number for number in range(len(steps)) if number not in sources]
    return max(furthest, 0), [(sources[i % len(sources)], number) for i, number in enumerate(behind)]

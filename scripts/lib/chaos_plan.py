"""The decisions of scripts/chaos: which faults come when, and what the completed steps say of each. Pure: no file, no
process, no clock."""

import math
import random
import re
import statistics
from typing import NamedTuple

KINDS = {
    "worker": "SIGKILL a worker",
    "workers": "SIGKILL two workers at once",
    "all": "SIGKILL all workers of all nodes at once",
    "stop": "SIGSTOP a worker: it is found by its silence (--heartbeat_timeout)",
    "agent": "SIGKILL an agent: its workers must die with it; another one is started in its place",
    "node": "SIGKILL an agent and its workers at once, as a lost machine; another one is started in its place",
    "leave": "SIGTERM an agent; another one is started in its place",
    "store": "SIGKILL `dtrun store` and start it again on the same port",
    "cut": "a node's cable is cut, both ways or one, and mended after 1 to 60 s (--longest); nodes are network namespaces",
    "long_cut": "the same for 35 to 120 s, longer than ssh and a coordinator that is gone are waited for",
    "disk": "a node's output directory does not answer (fsfreeze) for 5 to 40 s: no node may be given up for that",
    "console": "nobody reads a node's, or the launcher's, terminal for 10 to 40 s, and a worker is killed meanwhile",
    "quit": "SIGTERM a worker: a rank that leaves",
    "terminate": "SIGTERM all agents and workers at once; all are started again, and no step may be redone",
    "freeze": "SIGSTOP an agent, the coordinator or the launcher for 1 to 60 s (--longest), then SIGCONT",
}
OF_AN_AGENT = {"agent", "node", "leave"}
OF_A_CABLE = {"cut", "long_cut"}
OUT_OF_TOUCH = OF_A_CABLE | {"freeze", "disk"}  # for a while: no node is replaced
OF_SEVERAL_NODES = OF_AN_AGENT | OUT_OF_TOUCH | {"store"}
OF_HOSTS = OF_A_CABLE | {"disk"}  # network namespaces with a disk each
LASTS_S = {"long_cut": (35.0, 120.0), "disk": (5.0, 40.0), "console": (10.0, 40.0)}
CUT_WAYS = ("both", "in", "out")  # "in": only what comes in passes
SHORTEST_S, LONGEST_S = 1.0, 60.0  # that a node is out of touch
LAUNCH_LONGEST_S = 50.0  # the same under a launcher: launcher and hosts give each other up after 60 s, less a sign of life's 5

JITTER = 0.2  # of --every: where in a step or a checkpoint a fault falls is left to chance
# After a fault the job trains on while what was lost is started again, and the next fault waits for that.
TRAINS_MEANWHILE = {"worker": 0.5, "workers": 0.5, "agent": 2.0, "node": 2.0, "leave": 2.0, "terminate": 2.0}  # seconds
SPARE_TIME = 1.25  # the quiet run is that much longer than all faults take: machines are not always equally fast


class Fault(NamedTuple):
    """One entry of the schedule."""
    number: int  # from 1
    kind: str
    gap: float  # seconds from the fault before it, or from the first step, to this one
    node: int  # whose agent it hits, or of whose workers the first is hit
    workers: tuple  # (node, local rank) of each worker that it hits itself
    seconds: float = 0.0  # that the node is out of touch, or its disk or console
    way: str = ""  # of a cut; of what freezes, "agent", "coordinator" (an agent, or the store) or "launcher"


class Step(NamedTuple):
    """A completed step, as a line of metrics.jsonl tells it."""
    step: int
    time: float  # seconds since 1970, whole milliseconds
    generation: int
    world_size: int


class Wait(NamedTuple):
    """dtrun itself waited before it started workers again."""
    begin: float
    end: float
    why: str


def draw_schedule(seed, faults, every, kinds, nodes, nproc_per_node, longest=LONGEST_S, freezes=("agent", "coordinator")):
    """The same arguments give the same schedule, whatever the machine and the Python."""
    draw = random.Random(seed).random  # the one method whose numbers Python promises never to change
    places = [(node, local_rank) for node in range(nodes) for local_rank in range(nproc_per_node)]
    schedule = []
    for number in range(1, faults + 1):
        kind = kinds[int(draw() * len(kinds))]
        gap = every * (1 + JITTER * (2 * draw() - 1))
        first, second = int(draw() * len(places)), draw()
        # Any other than the first.
        second = (first + 1 + int(second * (len(places) - 1))) % len(places)
        workers = {"worker": (places[first],), "stop": (places[first],), "quit": (places[first],),
                   "console": (places[first],), "all": tuple(places),
                   "workers": (places[first], places[second])}.get(kind, ())
        seconds, way = 0.0, ""
        if kind in LASTS_S:
            shortest, most = LASTS_S[kind]
            seconds = shortest + (most - shortest) * draw()
            way = CUT_WAYS[int(draw() * len(CUT_WAYS))] if kind in OF_A_CABLE else ""
        elif kind in OUT_OF_TOUCH:  # drawn last: the other kinds' schedules stay what they were
            # As many short ones as long ones: the keep-alive's 15 s lie in the middle.
            seconds = SHORTEST_S * (longest / SHORTEST_S) ** draw()
            ways = CUT_WAYS if kind == "cut" else freezes
            way = ways[int(draw() * len(ways))]
        schedule.append(Fault(number, kind, gap, places[first][0], workers, seconds, way))
    return schedule


def seconds_needed(schedule, every, goes_on=True):
    """How long a quiet run has to last so that a run under fire is still training at the last fault and a while after.
    `goes_on`: without a node that is out of touch. Workers train on while an agent or a store stands still."""
    return SPARE_TIME * sum(fault.gap + (goes_on or fault.kind not in OF_A_CABLE) * fault.seconds + TRAINS_MEANWHILE.get(fault.kind, 0) for fault in schedule) + every


def steps_for(seconds, probe):
    """How many steps take that long, at the pace of the steps `probe`."""
    return max(1, math.ceil(seconds * (len(probe) - 1) / training_seconds(probe)))


def training_seconds(steps):
    """From the first completed step to the last, whatever happened in between."""
    return steps[-1].time - steps[0].time


def floor_ms(time):
    return math.floor(time * 1000 + 1e-6) / 1000


def recovery_step(kind, struck_at, steps):
    """The first step that shows that training goes on after a fault; None if there is none yet. `steps`: in the order in
    which they were completed.

    A step of the old generation does not count: it may have been in flight, and the victim have done its part. Only
    a store can be lost without a new generation, and a node be out of touch. The time of `terminate` is that of the new
    start, whose generations begin anew."""
    struck_at = floor_ms(struck_at)  # as the times of steps
    before = max((step.generation for step in steps if step.time < struck_at), default=0)
    wanted = 0 if kind == "terminate" else before if kind == "store" or kind in OUT_OF_TOUCH else before + 1
    return next((step for step in steps if step.time >= struck_at and step.generation >= wanted), None)


def redone(steps):
    """(time, count) of each time that training went back: how many completed steps it had to do again."""
    return [(after.time, before.step - after.step + 1)
            for before, after in zip(steps, steps[1:]) if after.step <= before.step]


def redone_between(steps, begin, end):
    return sum(count for time, count in redone(steps) if begin <= time < end)


BACK_OFF = re.compile(r"restart \d+ of \d+ in \d+ s$")
WAITS_FOR_NODES = re.compile(r"^(waiting: )?joined \d+ of ")


def waits_of(events):
    """When dtrun itself waited, by the agents' own record: a back-off before a restart, or for nodes that were missing.
    `events`: of events.jsonl. What several agents say of one wait is one wait."""
    waits, begun = [], None
    for event in sorted(events, key=lambda event: event["time"]):
        text = event.get("text", "") if event["event"] == "notice" else ""
        if begun is None and (BACK_OFF.search(text) or WAITS_FOR_NODES.search(text)):
            begun = (event["time"], "back-off" if BACK_OFF.search(text) else "for nodes")
        elif begun is not None and event["event"] == "start_workers":
            waits.append(Wait(begun[0], event["time"], begun[1]))
            begun = None
    return waits


TOOK_OVER = re.compile(r": node(\d+) took over$")


def leader_of(events):
    """The node that has the coordinator, by the agents' own record: the first one until another takes over. `events`: of
    events.jsonl."""
    leaders = [found[1] for event in sorted(events, key=lambda event: event["time"])
               if (found := TOOK_OVER.search(event.get("text", "")))]
    return int(leaders[-1]) if leaders else 0


def waited_between(waits, begin, end):
    return sum(max(0.0, min(wait.end, end) - max(wait.begin, begin)) for wait in waits)


def percentile(values, share):
    """Nearest rank: a value that was measured, never one in between."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def statistics_of(times_ms):
    """Of the times to the next step; all None if there are none."""
    if not times_ms:
        return dict.fromkeys(("median_ms", "p90_ms", "p99_ms", "max_ms"))
    return {"median_ms": statistics.median(times_ms), "p90_ms": percentile(times_ms, 0.9),
            "p99_ms": percentile(times_ms, 0.99), "max_ms": max(times_ms)}


def goodput(quiet, under_fire):
    """Share of the time under fire that a run without faults would have needed. Both: their completed steps."""
    return training_seconds(quiet) / training_seconds(under_fire)


def faults_of_metrics(steps_in_file, max_steps):
    """What is wrong with the steps that metrics.jsonl holds in the end; empty if each stands there once, in order."""
    if steps_in_file == list(range(1, max_steps + 1)):
        return ""
    missing = sorted(set(range(1, max_steps + 1)) - set(steps_in_file))
    twice = len(steps_in_file) - len(set(steps_in_file))
    if missing:
        return f"metrics.jsonl lacks {len(missing)} of {max_steps} steps, the first of them {missing[0]}"
    if twice:
        return f"metrics.jsonl has {twice} steps twice"
    return f"metrics.jsonl has other steps than 1 to {max_steps} in order"

"""The part `coordinator` of scripts/bench: joins, assignments and heartbeats of the coordinator, over real gRPC streams of
one client process, next to a bare gRPC server that decides nothing (tests/bench/rendezvous_bench.cc) in turn. Joins with
a job's key are compared with those without."""

import json
import statistics
import subprocess

from bench_common import DTRUN, ROOT, BenchError, attempt, row, rows_of
from bench_processes import Program, cpu_seconds, status_kb

CLIENT = ROOT / "build/release/bin/rendezvous_bench"
LIMIT_S = 150  # the client gives up after 120 s

TARGET_RATIO = 1.3  # times what bare gRPC takes

JOINS = ((100, 100), (1000, 1000), (10000, 100), (10000, 10000))  # agents, connections
ASSIGNMENTS = ((100, 100), (1000, 1000), (10000, 100), (10000, 10000))
HEARTBEAT_STREAMS, HEARTBEATS = 100, 500_000
KEY_JOINS = (100, 10000)  # agents, each with a connection of its own
TARGET_KEY_SECONDS = {100: 0.5}  # more than plain
TARGET_KEY_RATIO = {10000: 5}


def start(*argv, key=""):
    return Program([CLIENT, *map(str, argv)], LIMIT_S, {"DTRUN_KEY": key}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                   text=True)


def line_of(program):
    line = program.process.stdout.readline().strip()
    if not line:
        raise BenchError("rendezvous_bench ended without an answer", program.name)
    return line


def measure_once(server_kind, mode, *numbers, key=""):
    """Seconds of one measurement with a server of its own, and what the server and its clients spent on it."""
    with start(server_kind, key=key) as server, start(mode, line_of(server), *numbers, key=key) as client:
        result = json.loads(line_of(client))
        result["server_cpu_seconds"] = cpu_seconds(server.pid)
        result["client_cpu_seconds"] = cpu_seconds(client.pid)
        result["server_rss_mb"] = status_kb(server.pid, "VmRSS") / 1024
    if result["missing"] != 0:
        raise BenchError(f"{result['missing']} agents got no answer", f"{client.name}, of {server.name}")
    return result


def measure_pair(rounds, mode, *numbers):
    """The bare server and the coordinator in turn, each as often first. The ratios are medians over the rounds of one
    round's ratio: its two runs saw about the same load from outside."""
    kinds = [("floor", "serve_floor"), ("coordinator", "serve")]
    runs = {kind: [] for kind, _ in kinds}
    for number in range(rounds):
        for kind, server in kinds if number % 2 == 0 else reversed(kinds):
            runs[kind].append(measure_once(server, mode, *numbers))

    def median(kind, what):
        return statistics.median(run[what] for run in runs[kind])

    def ratio(what):
        return statistics.median(ours[what] / floor[what] for ours, floor in zip(runs["coordinator"], runs["floor"]))

    return {"floor_seconds": median("floor", "seconds"), "seconds": median("coordinator", "seconds"),
            "ratio": ratio("seconds"), "cpu_ratio": ratio("server_cpu_seconds"),
            **{f"{kind}_{what}": median(kind, f"server_{what}") for kind in runs for what in ("cpu_seconds", "rss_mb")},
            "runs": runs}


def measure_key(rounds, agents):
    """Joins without and with a job's key in turn; medians."""
    key = subprocess.run([DTRUN, "key"], check=True, capture_output=True, text=True).stdout.strip()
    runs = {"plain": [], "key": []}
    for _ in range(rounds):
        for kind, text in (("plain", ""), ("key", key)):
            runs[kind].append(measure_once("serve", "join", agents, agents, key=text))
    whats = ("seconds", "server_cpu_seconds", "client_cpu_seconds")
    return {"agents": agents, "runs": runs,
            **{kind: {what: statistics.median(run[what] for run in runs[kind]) for what in whats} for kind in runs}}


def rounds_of(options, agents):
    return 1 if options.quick else 5 if agents > 1000 else 9


def measure_each(options, mode, what, sizes, results):
    """Appends to `results`; each size stands alone."""
    for agents, connections in sizes:
        pair = attempt(f"coordinator: {what} of {agents} agents over {connections} connections", measure_pair,
                       rounds_of(options, agents), mode, agents, connections)
        results.append({"agents": agents, "connections": connections, **pair})


def measure(options, results):
    results.update(joins=[], assignments=[])
    measure_each(options, "join", "joins", JOINS, results["joins"])
    measure_each(options, "assign", "a run", ASSIGNMENTS, results["assignments"])
    pair = attempt("coordinator: heartbeats", measure_pair, 1 if options.quick else 5, "heartbeat", HEARTBEAT_STREAMS,
                   HEARTBEATS)
    results["key_joins"] = [attempt(f"coordinator: joins of {agents} agents with a key", measure_key,
                                    1 if options.quick or agents > 1000 else 9, agents) for agents in KEY_JOINS]
    results["heartbeats"] = {"streams": HEARTBEAT_STREAMS, "heartbeats": HEARTBEATS, **pair}


def compared(what, pair, value, floor):
    yield row(what, value)
    yield row("  bare gRPC", floor)
    yield row("  time, in terms of bare gRPC's", f"{pair['ratio']:.2f} ×", f"<= {TARGET_RATIO} ×",
              pair["ratio"] <= TARGET_RATIO)
    yield row("  the server's CPU time, in the same terms", f"{pair['cpu_ratio']:.2f} ×")
    for kind, who in (("coordinator", "coordinator"), ("floor", "bare gRPC")):
        yield row(f"  the server's CPU time, memory: {who}",
                  f"{pair[kind + '_cpu_seconds']:.2f} s, {pair[kind + '_rss_mb']:.0f} MiB")


def rates(what, pair, count):
    return rows_of(pair, what, lambda pair: compared(
        what, pair, f"{count / pair['seconds']:,.0f} /s", f"{count / pair['floor_seconds']:,.0f} /s"))


def times(what, pair):
    return rows_of(pair, what, lambda pair: compared(
        what, pair, f"{pair['seconds'] * 1e3:.1f} ms", f"{pair['floor_seconds'] * 1e3:.1f} ms"))


def beside_plain(joins):
    plain, key, agents = joins["plain"], joins["key"], joins["agents"]
    dearer, ratio = key["seconds"] - plain["seconds"], key["seconds"] / plain["seconds"]
    in_seconds, in_ratio = TARGET_KEY_SECONDS.get(agents), TARGET_KEY_RATIO.get(agents)
    yield row(f"{agents:,} joins with a key", f"{key['seconds']:.2f} s")
    yield row("  without", f"{plain['seconds']:.2f} s")
    yield row("  dearer by", f"{dearer:.2f} s", *((f"<= {in_seconds} s", dearer <= in_seconds) if in_seconds else ()))
    yield row("  time, in terms of plain", f"{ratio:.1f} ×", *((f"<= {in_ratio} ×", ratio <= in_ratio) if in_ratio else ()))
    for who in ("server", "client"):
        spent = f"{who}_cpu_seconds"
        yield row(f"  the {who}'s CPU time: with a key, without", f"{key[spent]:.2f}, {plain[spent]:.2f} s")


def rows(results):
    for join in results["joins"]:
        yield from rates(f"joins, {join['agents']:,} agents on {join['connections']:,} connections", join, join["agents"])
    for run in results["assignments"]:
        yield from times(f"last join to last assignment, {run['agents']:,} on {run['connections']:,}", run)
    for joins in results.get("key_joins", ()):
        yield from rows_of(joins, "joins with a key", beside_plain)
    yield from rates(f"heartbeats on {HEARTBEAT_STREAMS} streams", results.get("heartbeats"), HEARTBEATS)

"""The part `coordinator` of scripts/bench: joins, assignments and heartbeats of the coordinator, over real gRPC streams of
one client process, next to a bare gRPC server that decides nothing (tests/bench/rendezvous_bench.cc) in turn."""

import json
import statistics
import subprocess

from bench_common import ROOT, BenchError, cpu_seconds, note, row, status_kb

CLIENT = ROOT / "build/release/bin/rendezvous_bench"
LIMIT_S = 150  # the client gives up after 120 s

TARGET_RATIO = 1.3  # times what bare gRPC takes

JOINS = ((100, 100), (1000, 1000), (10000, 100), (10000, 10000))  # agents, connections
ASSIGNMENTS = ((100, 100), (1000, 1000), (10000, 100), (10000, 10000))
HEARTBEAT_STREAMS, HEARTBEATS = 100, 500_000


def start(*argv):
    return subprocess.Popen([CLIENT, *map(str, argv)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def measure_once(server_kind, mode, *numbers):
    """Seconds of one measurement with a server of its own, and what the server spent on it."""
    with start(server_kind) as server:
        port = server.stdout.readline().strip()
        with start(mode, port, *numbers) as client:
            answer = client.stdout.readline()
            result = json.loads(answer) if answer else {"missing": -1}
            result["server_cpu_seconds"] = cpu_seconds(server.pid)
            result["server_rss_mb"] = status_kb(server.pid, "VmRSS") / 1024
            client.stdin.close()
        server.stdin.close()
    if result["missing"] != 0:
        raise BenchError(f"rendezvous_bench {mode} {numbers} on {server_kind}: {result['missing']} agents got no answer")
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


def rounds_of(options, agents):
    return 1 if options.quick else 5 if agents > 1000 else 9


def measure(options):
    result = {"joins": [], "assignments": []}
    for agents, connections in JOINS:
        note(f"coordinator: {agents} joins over {connections} connections")
        pair = measure_pair(rounds_of(options, agents), "join", agents, connections)
        result["joins"].append({"agents": agents, "connections": connections, **pair})
    for agents, connections in ASSIGNMENTS:
        note(f"coordinator: a run of {agents} nodes over {connections} connections")
        pair = measure_pair(rounds_of(options, agents), "assign", agents, connections)
        result["assignments"].append({"agents": agents, "connections": connections, **pair})
    note("coordinator: heartbeats")
    pair = measure_pair(1 if options.quick else 5, "heartbeat", HEARTBEAT_STREAMS, HEARTBEATS)
    result["heartbeats"] = {"streams": HEARTBEAT_STREAMS, "heartbeats": HEARTBEATS, **pair}
    return result


def rows(result):
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
        return compared(what, pair, f"{count / pair['seconds']:,.0f} /s", f"{count / pair['floor_seconds']:,.0f} /s")

    def times(what, pair):
        return compared(what, pair, f"{pair['seconds'] * 1e3:.1f} ms", f"{pair['floor_seconds'] * 1e3:.1f} ms")

    def on(part):
        return f"{part['agents']:,} agents on {part['connections']:,} connections"

    for join in result["joins"]:
        yield from rates(f"joins, {on(join)}", join, join["agents"])
    for run in result["assignments"]:
        yield from times(f"last join to last assignment, {run['agents']:,} on {run['connections']:,}", run)
    heartbeats = result["heartbeats"]
    yield from rates(f"heartbeats on {heartbeats['streams']} streams", heartbeats, heartbeats["heartbeats"])

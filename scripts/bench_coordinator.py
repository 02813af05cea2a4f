"""The part `coordinator` of scripts/bench: joins and heartbeats per second of the coordinator, from real gRPC streams of
one client process, next to a bare gRPC server that decides nothing (tests/bench/rendezvous_bench.cc) in turn."""

import json
import statistics
import subprocess

from bench_common import ROOT, BenchError, cpu_seconds, note, row, status_kb

CLIENT = ROOT / "build/release/bin/rendezvous_bench"
LIMIT_S = 150  # the client gives up after 120 s

TARGET_RATIO = 1.3  # times what bare gRPC takes

JOINS = ((100, 100), (1000, 1000), (10000, 100), (10000, 10000))  # agents, connections
ASSIGNMENTS = ((100, 100), (1000, 1000))
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
    """The bare server and the coordinator in turn; medians."""
    runs = {"floor": [], "coordinator": []}
    for _ in range(rounds):
        runs["floor"].append(measure_once("serve_floor", mode, *numbers))
        runs["coordinator"].append(measure_once("serve", mode, *numbers))
    floor, coordinator = (statistics.median(run["seconds"] for run in runs[kind]) for kind in ("floor", "coordinator"))
    return {"floor_seconds": floor, "seconds": coordinator, "ratio": coordinator / floor, "runs": runs}


def measure(options):
    result = {"joins": [], "assignments": []}
    for agents, connections in JOINS:
        note(f"coordinator: {agents} joins over {connections} connections")
        rounds = 1 if options.quick else 3 if agents > 1000 else 9
        pair = measure_pair(rounds, "join", agents, connections)
        result["joins"].append({"agents": agents, "connections": connections, **pair})
    for agents, connections in ASSIGNMENTS:
        note(f"coordinator: a run of {agents} nodes")
        once = measure_once("serve", "assign", agents, connections)
        result["assignments"].append({"agents": agents, "connections": connections, **once})
    note("coordinator: heartbeats")
    pair = measure_pair(1 if options.quick else 3, "heartbeat", HEARTBEAT_STREAMS, HEARTBEATS)
    result["heartbeats"] = {"streams": HEARTBEAT_STREAMS, "heartbeats": HEARTBEATS, **pair}
    return result


def rows(result):
    def compared(what, count, pair):
        yield row(what, f"{count / pair['seconds']:,.0f} /s")
        yield row("  bare gRPC", f"{count / pair['floor_seconds']:,.0f} /s")
        yield row("  time, in terms of bare gRPC's", f"{pair['ratio']:.2f} ×", f"<= {TARGET_RATIO} ×",
                  pair["ratio"] <= TARGET_RATIO)

    for join in result["joins"]:
        yield from compared(f"joins, {join['agents']:,} agents on {join['connections']:,} connections", join["agents"], join)
        spent = join["runs"]["coordinator"][-1]
        yield row("  the coordinator's CPU time, memory",
                  f"{spent['server_cpu_seconds']:.2f} s, {spent['server_rss_mb']:.0f} MiB")
    for start_of_run in result["assignments"]:
        yield row(f"a run of {start_of_run['agents']:,} nodes: all joined and assigned", f"{start_of_run['seconds']:.2f} s")
    heartbeats = result["heartbeats"]
    yield from compared(f"heartbeats on {heartbeats['streams']} streams", heartbeats["heartbeats"], heartbeats)

"""The part `launch` of scripts/bench: time from `dtrun … -- /bin/true` to its end, memory and CPU time of the agent while
workers run."""

import subprocess
import time

from bench_common import DTRUN, attempt, row, rows_of
from bench_processes import Program, cpu_seconds, milliseconds, status_kb, wait_for_workers

WORKERS = 2

TARGET_LAUNCH_MS = 35
TARGET_RSS_MB = 25
TARGET_IDLE_CPU = 0.001  # cores: "next to none"


def measure_idle_agent(seconds):
    """Memory and CPU time of an agent whose workers sleep."""
    argv = [DTRUN, "--standalone", "--nproc_per_node", str(WORKERS), "--", "sleep", str(seconds + 60)]
    with Program(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as agent:
        wait_for_workers(agent, "sleep", WORKERS)
        time.sleep(1)
        cpu_before, begin = cpu_seconds(agent.pid), time.monotonic()
        time.sleep(seconds)
        cpu = cpu_seconds(agent.pid) - cpu_before
        return {
            "rss_mb": status_kb(agent.pid, "VmRSS") / 1024,
            "peak_rss_mb": status_kb(agent.pid, "VmHWM") / 1024,
            "threads": status_kb(agent.pid, "Threads"),
            "cpu_seconds": cpu,
            "cpu_cores": cpu / (time.monotonic() - begin),
            "seconds": seconds,
        }


def measure(options, results):
    repeats, idle_seconds = (5, 2) if options.quick else (20, 10)
    standalone = [DTRUN, "--standalone", "--nproc_per_node", str(WORKERS), "--", "/bin/true"]
    for key, argv in (("dtrun_true_ms", standalone), ("sh_true_ms", ["sh", "-c", "true"]),
                      ("dtrun_version_ms", [DTRUN, "--version"])):
        results[key] = attempt(f"launch: {key}", milliseconds, argv, repeats)
    results["agent"] = attempt("launch: an agent with idle workers", measure_idle_agent, idle_seconds)


def launch_rows(wall):
    yield row(f"dtrun --standalone --nproc_per_node {WORKERS} -- /bin/true", f"{wall['median']:.1f} ms",
              f"< {TARGET_LAUNCH_MS} ms", wall["median"] < TARGET_LAUNCH_MS)
    yield row(f"  fastest, slowest of {len(wall['runs'])}", f"{wall['min']:.1f}, {wall['max']:.1f} ms")


def agent_rows(agent):
    yield row(f"agent's resident memory, {WORKERS} workers running", f"{agent['rss_mb']:.1f} MiB",
              f"< {TARGET_RSS_MB} MiB", agent["rss_mb"] < TARGET_RSS_MB)
    yield row(f"agent's CPU time in {agent['seconds']} s, workers idle", f"{agent['cpu_seconds'] * 1e3:.1f} ms",
              f"< {TARGET_IDLE_CPU * agent['seconds'] * 1e3:.0f} ms", agent["cpu_cores"] < TARGET_IDLE_CPU)


def rows(results):
    def median_row(what):
        return lambda wall: [row(what, f"{wall['median']:.1f} ms")]

    launch = f"dtrun --standalone --nproc_per_node {WORKERS} -- /bin/true"
    version, shell = "  dtrun --version", "  sh -c true (what any process costs here)"
    yield from rows_of(results.get("dtrun_true_ms"), launch, launch_rows)
    yield from rows_of(results.get("dtrun_version_ms"), version, median_row(version))
    yield from rows_of(results.get("sh_true_ms"), shell, median_row(shell))
    yield from rows_of(results.get("agent"), "agent's memory and CPU time", agent_rows)

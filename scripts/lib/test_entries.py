#!/usr/bin/env python3
"""Which entries of a build's ctest run, and what they cost. scripts/test calls it.

  test_entries.py select BUILD TIER [FILE…]   one regular expression for `ctest -R`. TIER: `default`, `all`, `clock` (those of
                                              the default tier that processes, sockets and so clocks are in), or `changed`:
                                              the default tier and the long entries that rest on a FILE
  test_entries.py rests ENTRY FILE…           exit code 0 if long entries whose names begin so rest on a FILE
  test_entries.py report COSTS…               the ten costliest; exit code 1 if too many were inconclusive
"""
import json
import os
import pathlib
import re
import subprocess
import sys

# What long entries rest on besides their own tests: (paths, entries).
INPUTS = [
    (r"package/|cmd/install\.cmake|CMakeLists\.txt$|CMakePresets|scripts/(setup|demo|image|common)|worker/kit/", r"package_"),
    (r"worker/device/(cuda/|[^/]+$)|worker/schedule/|tests/(cuda_on_cpu|worker/device/cuda)/", r"worker_device_|cuda_on_cpu_|worker_trainer_cuda|e2e_(gpu|nccl)|worker_collective_"),
    (r"worker/kit/|agent/core/", r"kit"),
    (r"rendezvous/(core/election|server|client)/", r"e2e_(failover|returning|nodes)|rendezvous_"),
    (r"rendezvous/core/run/", r"rendezvous_core_"),
    (r"agent/(core|process)/", r"e2e_(returning|nodes)|chaos_"),
    (r"cmd/(hosts|launch)/", r"e2e_ssh_"),
    (r"cmd/cluster/", r"e2e_slurm_"),
    (r"scripts/(chaos|lib/chaos)", r"chaos_"),
    (r"scripts/(bench_gpu|lib/bench_gpu)", r"bench_gpu"),
    (r"rendezvous/core/observe/", r"e2e_straggler"),
    (r"worker/(model|device/cpu|vector|reduction|optim)/", r"e2e_models|torch_|processors_|worker_reduction_"),
]
MOST_INCONCLUSIVE = 0.01
COSTLIEST = 10


def entries_of(build):
    """[(name, labels)] of a configured build."""
    shown = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], stdout=subprocess.PIPE, text=True, check=True)
    found = []
    for test in json.loads(shown.stdout)["tests"]:
        labels = [label for given in test.get("properties", []) if given["name"] == "LABELS" for label in given["value"]]
        found.append((test["name"], set(labels)))
    return found


def rests_on(entry, changed):
    """Whether a long entry's outcome can follow from the changed files."""
    for path in changed:
        if any(re.match(paths, path) and re.match(entries, entry) for paths, entries in INPUTS):
            return True
        if path.startswith("tests/") and not path.startswith("tests/support/"):
            own = path[len("tests/"):-len("_test.cc")] if path.endswith("_test.cc") else os.path.dirname(path[len("tests/"):])
            if own and entry.startswith(own.replace("/", "_")):
                return True
    return False


def selected(entries, tier, changed):
    """The names of the entries that run."""
    def is_wanted(name, labels):
        if tier == "all" or "default" in labels:
            return tier != "clock" or bool(labels & {"proc", "net", "slow"})
        return tier == "changed" and rests_on(name, changed)
    return [name for name, labels in entries if is_wanted(name, labels)]


def report(costs):
    """What people read, and whether the run was fair. costs: lines of tests/support/box.cc, each with its build's name in front."""
    rows = [(float(cpu), float(wall), int(again), name) for name, cpu, wall, again in (line.rsplit(" ", 3) for line in costs)]
    lines = ["the costliest entries (CPU s, wall s):"]
    lines += [f"  {cpu:7.1f} {wall:7.1f}  {name}" for cpu, wall, _, name in sorted(rows, reverse=True)[:COSTLIEST]]
    again = sorted(name for _, _, times, name in rows if times)
    if again:
        lines.append(f"inconclusive, so run again: {' '.join(again)}")
    return lines, len(again) <= max(1, MOST_INCONCLUSIVE * len(rows))


def main(words):
    if words[:1] == ["select"] and len(words) >= 3:
        names = selected(entries_of(words[1]), words[2], words[3:])
        print(f"^({'|'.join(map(re.escape, names))})$")
        return 0
    if words[:1] == ["rests"] and len(words) >= 2:
        return 0 if rests_on(words[1], words[2:]) else 1
    if words[:1] == ["report"]:
        costs = []
        for path in map(pathlib.Path, words[1:]):
            if path.exists():
                costs += [f"{path.parent.name}: {line}" for line in path.read_text().splitlines()]
        lines, is_fair = report(costs)
        print("\n".join(lines))
        return 0 if is_fair else 1
    print(__doc__.strip())
    return 64


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The part `recovery` of scripts/bench: how long training stands still when a worker or a node is killed, and how much of
its time a run under fire still trains: the built-in trainer, and PyTorch's DistributedDataParallel with the worker kit; beside
that one under torchrun, and torchft. The faults are those of scripts/chaos."""

import functools
import json
import pathlib
import tempfile

import chaos_plan
import chaos_run
from bench_common import DTRUN, NO_TORCH, ROOT, BenchError, attempt, error, failed, failed_row, note, python_with_torch, row, rows_of
from bench_peer import command_of_torchrun, free_port

CONFIG = ROOT / "configs/fashion_mnist_convnet.json"
TORCH_SCRIPT = ROOT / "scripts/lib/bench_torch_recovery.py"
KIT_SCRIPT = ROOT / "scripts/lib/bench_kit_recovery.py"
TORCHFT_SCRIPT = ROOT / "scripts/lib/bench_torchft_recovery.py"
OF_A_TORCH_WORKER = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
NO_TORCHFT = "torchft is not measured: the Python has none (pip install torchft-nightly, and --python)"
WORKERS = 2
SAVE_STEPS = 50  # as bench_torch_recovery.py has it
MAX_RESTARTS = 1000
SEED = 1

TARGET_MEDIAN_MS = 100
TARGET_P99_MS = 300
TARGET_NODE_MS = 1000
TARGET_KIT_MEDIAN_MS = 60
OFTEN_S, SELDOM_S, NODE_S = 1, 5, 3  # from one fault to the next
TARGET_GOODPUT = {OFTEN_S: 0.7, SELDOM_S: 0.9}


def dtrun_starter(nodes):
    """A function (max_steps, folder) that gives a chaos_run.Training."""
    job = chaos_run.Job(dtrun=str(DTRUN), config=json.loads(CONFIG.read_text()), nodes=nodes,
                        nproc_per_node=WORKERS // nodes, save_steps=SAVE_STEPS, max_restarts=MAX_RESTARTS)
    return functools.partial(chaos_run.training_of, job)


def torch_starter(python):
    """The same for torchrun on one node. Its agent has a store that outlives workers, in which restarted workers find
    the addresses of those before them (pytorch/pytorch issue 135712); the variable makes them use one of their own."""
    environment = {**OF_A_TORCH_WORKER, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}

    def start(max_steps, folder):
        folder.mkdir(parents=True)
        argv = command_of_torchrun(python) + ["--standalone", "--nproc_per_node", str(WORKERS), "--max_restarts",
                                              str(MAX_RESTARTS), "--monitor_interval", "0.1", str(TORCH_SCRIPT),
                                              str(folder), str(max_steps)]
        return chaos_run.Training(folder, folder / "metrics.jsonl", max_steps, 1, WORKERS, argv, environment=environment)
    return start


def kit_starter(python):
    """The same for the worker kit under dtrun."""
    environment = {**OF_A_TORCH_WORKER, "PYTHON_EXEC": str(python), "PYTHONPATH": str(ROOT / "worker/kit/python"),
                   "PYTHONDONTWRITEBYTECODE": "1"}

    def start(max_steps, folder):
        folder.mkdir(parents=True)
        argv = [str(DTRUN), "--standalone", "--nproc_per_node", str(WORKERS), "--max_restarts", str(MAX_RESTARTS), "--recovery",
                "memory", "--progress", "none", str(KIT_SCRIPT), str(folder), str(max_steps)]
        return chaos_run.Training(folder, folder / "metrics.jsonl", max_steps, 1, WORKERS, argv, environment=environment)
    return start


def lighthouse_beside(python):
    """torchft's program where workers meet; pip puts it beside the Python."""
    return pathlib.Path(python).with_name("torchft_lighthouse")


def torchft_starter(python):
    """The same for torchft: a torchrun for each worker, and a lighthouse where they meet."""
    def start(max_steps, folder):
        folder.mkdir(parents=True)
        port = free_port()
        lighthouse = [str(lighthouse_beside(python)), "--bind", f"127.0.0.1:{port}", "--min_replicas", "1",
                      "--quorum_tick_ms", "100", "--join_timeout_ms", "1000"]
        argv = command_of_torchrun(python) + ["--standalone", "--nproc_per_node", "1", "--max_restarts", str(MAX_RESTARTS),
                                              "--monitor_interval", "0.1", str(TORCHFT_SCRIPT), str(folder),
                                              str(max_steps)]
        environment = {**OF_A_TORCH_WORKER, "TORCHFT_LIGHTHOUSE": f"http://127.0.0.1:{port}"}
        return chaos_run.Training(folder, folder / "metrics.jsonl", max_steps, WORKERS, 1, argv, lighthouse, port,
                                  environment)
    return start


def measure_under_fire(start, kind, faults, every, nodes=1):
    """A quiet run and one with faults. Raises BenchError if anything was lost."""
    schedule = chaos_plan.draw_schedule(SEED, faults, every, [kind], nodes, WORKERS // nodes)
    with tempfile.TemporaryDirectory(prefix="dtrun-bench-", ignore_cleanup_errors=True) as scratch:
        folder = pathlib.Path(scratch)
        max_steps = chaos_run.steps_for(start, chaos_plan.seconds_needed(schedule, every), folder / "probe")
        quiet = chaos_run.quiet_run(start(max_steps, folder / "quiet"))
        fired = chaos_run.outcome_of(start(max_steps, folder / "fire"), schedule)
        problems = fired.problems + [f"left running: pid {left}" for left in fired.leftovers]
        if fired.params_sha256 != quiet.params_sha256:
            problems.append("the run under fire has other parameters than the quiet one")
        if problems or not fired.struck:
            raise BenchError("; ".join(problems) or "the job ended before the first fault",
                             chaos_run.words_in(folder / "fire"))
    recovered = [chaos_plan.recovery_step(struck.fault.kind, struck.time, fired.steps) for struck in fired.struck]
    seconds = chaos_plan.training_seconds(fired.steps)
    return {"ms": [(step.time - chaos_plan.floor_ms(struck.time)) * 1e3
                   for struck, step in zip(fired.struck, recovered) if step],
            "faults": len(fired.struck), "steps": max_steps, "goodput": chaos_plan.goodput(quiet.steps, fired.steps),
            "quiet_seconds": chaos_plan.training_seconds(quiet.steps), "seconds": seconds,
            "seconds_per_fault": seconds / len(fired.struck),
            "steps_redone": sum(count for _, count in chaos_plan.redone(fired.steps)),
            "launcher_waited_seconds": sum(wait.end - wait.begin for wait in fired.waits)}


def measure(options, results):
    results.update({"dtrun": {}, "kit": {}, "torchrun": {}, "torchft": {}})
    often, seldom, nodes = (8, 2, 2) if options.quick else (30, 8, 8)
    one_node, dtrun = dtrun_starter(1), results["dtrun"]
    dtrun["often"] = attempt(f"recovery: dtrun, a worker killed every {OFTEN_S} s", measure_under_fire, one_node, "worker",
                             often, OFTEN_S)
    dtrun["seldom"] = attempt(f"recovery: dtrun, a worker killed every {SELDOM_S} s", measure_under_fire, one_node,
                              "worker", seldom, SELDOM_S)
    dtrun["node"] = attempt("recovery: dtrun, one of two nodes killed", measure_under_fire, dtrun_starter(2), "node", nodes,
                            NODE_S, 2)
    python = python_with_torch(options.python)
    if python is None:
        results["torchrun"] = error(NO_TORCH)
        return
    peers = {"kit": (kit_starter(python), 1), "torchrun": (torch_starter(python), 1)}
    if lighthouse_beside(python).exists():
        peers["torchft"] = torchft_starter(python), WORKERS
    else:
        note(NO_TORCHFT)
    # Seconds for each fault, and far from any target: few of them.
    often, seldom = (2, 1) if options.quick else (6, 4)
    for peer, (start, nodes) in peers.items():
        for key, every, faults in (("often", OFTEN_S, often), ("seldom", SELDOM_S, seldom)):
            results[peer][key] = attempt(f"recovery: {peer}, a worker killed every {every} s", measure_under_fire, start,
                                         "worker", faults, every, nodes)


def time_rows(name, targets=(None, None)):
    """Median and p99 of the times to the next step, for rows_of."""
    def rows(result):
        ms = chaos_plan.statistics_of(result["ms"])
        for what, target in zip(("median_ms", "p99_ms"), targets):
            met = None if target is None else ms[what] is not None and ms[what] <= target
            number = "none" if ms[what] is None else f"{ms[what]:,.0f} ms"
            yield row(f"{name}, {what[:-3]} of {result['faults']}", number, f"<= {target} ms" if target else "", met)
    return rows


def goodput_rows(name, target=None):
    def rows(result):
        yield row(name, f"{result['goodput'] * 100:.1f} %", f">= {target * 100:.0f} %" if target else "",
                  None if target is None else result["goodput"] >= target)
        if result["launcher_waited_seconds"] >= 0.1:
            yield row("  of its time dtrun backed off for", f"{result['launcher_waited_seconds']:.1f} s")
    return rows


def rows(results):
    dtrun = results["dtrun"]
    if failed(results["torchrun"]):
        yield failed_row("torchrun", results["torchrun"])
    peers = {peer: results[peer] for peer in ("kit", "torchrun", "torchft") if results[peer] and not failed(results[peer])}

    def compared(key, what, ours, theirs):
        yield from rows_of(dtrun.get(key), what, ours)
        for peer, numbers in peers.items():
            yield from rows_of(numbers.get(key), f"  {peer}: {what}", theirs(f"  {peer}", *targets.get((peer, key, theirs), ())))

    targets = {("kit", "often", time_rows): [(TARGET_KIT_MEDIAN_MS, None)],
               ("kit", "seldom", goodput_rows): [TARGET_GOODPUT[SELDOM_S]]}
    killed = "a worker's SIGKILL to the next step"
    yield from compared("often", killed, time_rows(killed, (TARGET_MEDIAN_MS, TARGET_P99_MS)), time_rows)
    for key, every in (("seldom", SELDOM_S), ("often", OFTEN_S)):
        what = f"goodput, a worker killed every {every} s"
        yield from compared(key, what, goodput_rows(what, TARGET_GOODPUT[every]), goodput_rows)
    lost = "a node's SIGKILL to the others' next step"
    yield from rows_of(dtrun.get("node"), lost, time_rows(lost, (TARGET_NODE_MS, None)))

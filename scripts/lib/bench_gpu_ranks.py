"""Several ranks on one GPU: the part `ranks` of scripts/bench_gpu. They take turns on it, and one that waits
for another in an exchange waits until its turn ends: a step takes far longer than with one rank."""

import contextlib
import os
import random
import re
import signal
import socket
import statistics
import subprocess
import time

from bench_common import BenchError
from bench_gpu_bits import compared, complete_metrics, trained, workers_of
from bench_gpu_checks import events
from bench_gpu_jobs import text_config
from bench_processes import Program


class Nodes:
    """Nodes of one worker each on this machine, all on the first GPU: to NCCL each is a host of its own."""

    def __init__(self, bench, count, config, restarts):
        job = bench.job(config)
        self.output = job.parent
        with socket.socket() as any_port:
            any_port.bind(("127.0.0.1", 0))
            endpoint = f"127.0.0.1:{any_port.getsockname()[1]}"
        options = ["--nnodes", str(count), "--nproc_per_node", "1", "--rdzv_endpoint", endpoint, "--rdzv_id", "ranks",
                   "--max_restarts", str(restarts), str(job)]
        self.bench, self.logs = bench, [self.output / f"{node}.log" for node in range(count)]
        self.options = [(options, {**bench.environment(), "NCCL_HOSTID": f"host{node}", "NCCL_MAX_NCHANNELS": "1",
                                   "NCCL_SOCKET_IFNAME": "lo", "DTRUN_LOG_LEVEL": "debug", "DTRUN_BENCH_RUN": str(self.output)})
                        for node in range(count)]

    def run(self, limit_s, beside=lambda running: None):
        """What they said. `beside` is called with their programs while they run."""
        path = self.bench.build / "bin/dtrun"
        with contextlib.ExitStack() as stack:
            programs = []
            for (options, environment), log in zip(self.options, self.logs):
                file = stack.enter_context(open(log, "w"))
                programs.append(stack.enter_context(Program([path, *options], self.bench.limit(limit_s), environment,
                                                            stdout=file, stderr=subprocess.STDOUT)))
            beside(programs)
            codes = [program.process.wait() for program in programs]
        out = "".join(log.read_text(errors="replace") for log in self.logs)
        if any(codes):
            raise BenchError(f"exit codes {', '.join(map(str, codes))}", out)
        if "through the hosts' memory" in out:
            raise BenchError("NCCL was not used", out)
        return out


def ranks(bench):
    steps, kills = (24, 2) if bench.sizes == "tiny" else (30, 2) if bench.quick else (60, 5)
    jobs, firsts = {}, {}

    def alone(what):
        metrics = bench.train(jobs[what], 60)
        text, values = trained(metrics)
        return with_pace(text, metrics, values)

    def same(what, count):
        nodes = Nodes(bench, count, jobs[what], 0)
        nodes.run(60)
        metrics = bench.metrics(nodes.output)
        return with_pace(compared(metrics, firsts[what]), metrics, {})

    for what in ("fp32", "bf16"):
        jobs[what] = text_config(bench, "cuda", what == "bf16", steps)
        jobs[what]["train"]["micro_batch_size"] = 1
        firsts[what] = bench.check(f"{what}, 1 rank", alone, what)
    for count in (2, 4):
        for what in jobs:
            bench.check(f"{what}, {count} ranks on one GPU", same, what, count)
    bench.check(f"{kills} times SIGKILL in mid-training", lambda: killed_ranks(bench, jobs["fp32"], firsts["fp32"], kills))


def with_pace(text, metrics, values):
    """A row's, of a run that tells of each step."""
    times = [line["time"] for line in events(metrics, "train")]
    pace = statistics.median(later - sooner for sooner, later in zip(times, times[1:])) * 1e3
    return f"{text}, {pace:.1f} ms a step", {"step_milliseconds": pace, **values}


def killed_ranks(bench, config, first, kills):
    """Kills a worker each time that training has gone on since the last time."""
    nodes, random_rank, done, gaps = Nodes(bench, 3, config, kills), random.Random(1), [], []

    def kill(programs):
        seen, since = 0, None  # the step before the last death, and when that was until training goes on
        while len(done) < kills and not any(program.ended() for program in programs):
            time.sleep(0.01)
            step = max((line["step"] for line in events(complete_metrics(nodes.output), "train")), default=0)
            if since is not None and step > seen:
                gaps.append((time.monotonic() - since) * 1e3)
                since = None
            workers = sorted(workers_of(nodes.output))
            if step < seen + 2 or len(workers) < len(programs):
                continue
            os.kill(random_rank.choice(workers), signal.SIGKILL)
            since = time.monotonic()
            done.append(step)
            seen = step

    out = nodes.run(90, kill)
    text = compared(bench.metrics(nodes.output), first)
    if not done:
        raise BenchError("no worker could be killed", out)
    lost = len(re.findall(r"the GPU failed while", out))
    took = [int(ms) for ms in re.findall(r"gave up NCCL's connections in (\d+) ms", out)]
    numbers = {"kills": len(done), "contexts_lost": lost, "abort_milliseconds": took, "to_next_step_milliseconds": gaps}
    aborts = f"{len(took)} aborts, median {statistics.median(took):.0f} ms, max {max(took)} ms" if took else "no abort was told"
    onward = f"; from a death to the next step {statistics.median(gaps):.0f} ms" if gaps else ""
    return f"{text}; {len(done)} kills, {lost} of the survivors' contexts lost with them; {aborts}{onward}", numbers

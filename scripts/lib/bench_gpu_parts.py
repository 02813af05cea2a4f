"""The parts of scripts/bench_gpu. A part is a function of a Bench, and makes checks."""

import functools
import json
import pathlib
import re
import shutil
import signal
import statistics
import uuid

from bench_common import ROOT, BenchError
from bench_gpu_checks import Skip, events
from bench_gpu_jobs import gpt2_config, gpt2_steps, last_hash, sizes_of, text_config, tokens, tokens_per_second
from bench_gpu_pack import CUDNN_TESTS, GPU_TESTS

TORCH_SCRIPT = ROOT / "scripts/lib/bench_gpu_torch.py"
TORCH_LIMIT_S = 200  # a first import from a cold disk, and most of a minute to compile GPT-2
LEAST_S = 40  # that a micro batch of gpt2 takes


def gpus(bench):
    def shown():
        text = bench.program(["bin/dtrun", "gpus"], 90)
        if bench.sees_device() and "no GPU for programs" in text:
            raise BenchError("there is a GPU's device file, but dtrun sees no GPU", text)
        return "; ".join(filter(None, text.splitlines())), {"gpus": text}

    def nvidia_smi():
        if shutil.which("nvidia-smi") is None:
            raise Skip("no nvidia-smi")
        fields = "name,driver_version,memory.total,clocks.max.sm,clocks.max.memory,power.limit,compute_mode,mig.mode.current"
        found = bench.command(["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"], 60).strip()
        return found.replace("\n", "; "), {"gpus": found}

    def driver():
        try:
            return pathlib.Path("/proc/driver/nvidia/version").read_text().splitlines()[0]
        except OSError as failure:
            raise Skip(f"no /proc/driver/nvidia/version: {failure.strerror}") from None

    for what, make in (("dtrun gpus", shown), ("nvidia-smi", nvidia_smi), ("driver", driver)):
        bench.check(what, make)


def tests(bench):
    """Each program as a whole, which saves starts; by topic if that fails."""
    for what, program in (("kernels, vectors, networks", GPU_TESTS), ("cuDNN's plans", CUDNN_TESTS)):
        bench.check(what, lambda program=program: passed(bench.program([program], 120)))
        if bench.rows and bench.rows[-1]["what"] == what and bench.rows[-1]["status"] == "failed":
            listed = bench.program([program, "--list-test-cases", "--reporters=xml"], 60)
            for topic in dict.fromkeys(re.findall(r'filename="[^"]*?(\w+)_test\.cc"', listed)):
                arguments = [program, f"--source-file=*/{topic}_test.cc"]
                bench.check(topic, lambda arguments=arguments: passed(bench.program(arguments, 60)))


def passed(out):
    found = re.search(r"test cases: +(\d+) \| +(\d+) passed", out)
    if not found or found.group(1) == "0":
        raise BenchError("no test ran", out)
    return f"{found.group(2)} cases", {"cases": int(found.group(2))}


def gpt2(bench):
    for batch in list(sizes_of(bench)["steps"])[:1 if bench.quick else None]:
        if bench.left() < LEAST_S and not bench.tiny:
            bench.leave_out(f"B={batch}")
        else:
            gpt2_of(bench, batch)


def gpt2_of(bench, batch):
    """By turns: ours, theirs, ours, theirs."""
    ours, theirs = [], []
    for again, attention in (("", "cudnn"), (", again", "flash")):
        ours.append(bench.check(f"B={batch}, dtrun{again}", gpt2_with_dtrun, bench, batch))
        theirs.append(bench.check(f"B={batch}, PyTorch, {attention} attention", gpt2_with_torch, bench, batch, attention))
    ours, theirs = list(filter(None, ours)), list(filter(None, theirs))
    if ours and theirs:
        bench.check(f"B={batch}, {len(ours)} runs beside PyTorch's best of {len(theirs)}", compared_with_torch, ours, theirs)


def gpt2_with_dtrun(bench, batch):
    metrics = bench.train(gpt2_config(bench, batch), 120)
    return rate_and_memory({"tokens_per_second": tokens_per_second(metrics),
                            "peak_bytes": events(metrics, "train")[-1]["gpu_memory_peak"],
                            "parameters": events(metrics, "start")[0]["parameters"]})


def gpt2_with_torch(bench, batch, attention):
    out = bench.command(["python3", "-B", TORCH_SCRIPT, "--batch", str(batch), "--steps", str(gpt2_steps(bench, batch)), "--tokens",
                         tokens(bench) / "train.bin", "--attention", attention], TORCH_LIMIT_S)
    answers = [line for line in out.splitlines() if line.startswith("{")]
    if not answers:
        raise BenchError("PyTorch did not answer", out)
    found = json.loads(answers[-1])
    if "skipped" in found:
        raise Skip(found["skipped"])
    return rate_and_memory(found)


def rate_and_memory(values):
    return f"{values['tokens_per_second']:,.0f} tokens/s, {values['peak_bytes'] / (1 << 30):.1f} GiB", values


def compared_with_torch(ours, theirs):
    here, there = ours[0]["parameters"], theirs[0]["parameters"]
    if here != there:
        raise BenchError(f"{here:,} parameters here, {there:,} in PyTorch")
    ratio = statistics.mean(row["tokens_per_second"] for row in ours) / max(row["tokens_per_second"] for row in theirs)
    memory_ratio = max(row["peak_bytes"] for row in ours) / min(row["peak_bytes"] for row in theirs)
    return (f"{ratio:.3f} × its tokens/s, {met(ratio > 1)}; {memory_ratio:.3f} × its memory, {met(memory_ratio < 1)}",
            {"ratio": ratio, "memory_ratio": memory_ratio})


def met(target):
    return "met" if target else "MISSED"


def determinism(bench):
    for bf16 in (True, False)[:1 if bench.quick else None]:
        what, config = "bf16" if bf16 else "fp32", text_config(bench, bf16)
        first = bench.check(f"{what}, a run", lambda config=config: trained(bench.train(config, 90)))
        waiting = {"CUDA_LAUNCH_BLOCKING": "1", "DTRUN_TEST_CUDA_GRAPHS": "0"}
        for how, again in (("again", bench.train), ("after kill -9", functools.partial(train_with_kill, bench)),
                           ("each launch waited for", functools.partial(bench.train, environment=waiting))):
            bench.check(f"{what}, {how}", same_as, first, again, config)


def trained(metrics):
    found = last_hash(metrics)
    return f"params_sha256 {found[:12]}", {"params_sha256": found}


def same_as(first, train, config):
    if first is None:
        raise Skip("there is nothing to compare with")
    found, wanted = last_hash(train(config, 120)), first["params_sha256"]
    if found != wanted:
        raise BenchError(f"params_sha256 is {found[:12]}, not {wanted[:12]}")
    return "the same"


def train_with_kill(bench, config, limit_s):
    """The worker is killed once it has trained a quarter; dtrun starts another one, which goes on from a checkpoint."""
    steps = config["train"]["max_steps"]
    config = {**config, "train": {**config["train"], "save_steps": steps // 8}}
    mark = bench.scratch / f"killed-{uuid.uuid4().hex}"
    stop = {"DTRUN_TEST_STOP": f"updated:rank=0:count={steps // 4}:once={mark}:signal={signal.SIGKILL:d}"}
    metrics = bench.train(config, limit_s, stop, restarts=1)
    if len({line["generation"] for line in events(metrics, "start")}) < 2:
        raise BenchError("the worker was not killed")
    return metrics


PARTS = {"gpus": gpus, "tests": tests, "gpt2": gpt2, "determinism": determinism}
NEED_GPU = ("tests", "gpt2", "determinism")

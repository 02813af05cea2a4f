"""The parts of scripts/bench_gpu. Each is a function of a Bench, and makes checks."""

import array
import contextlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time

from bench_common import ROOT, BenchError, note
from bench_gpu_checks import Skip, events, read_metrics
from bench_processes import Program, processes_with

GPU_TESTS = "tests/gpu_device_tests"
ALGORITHMS = "tests/gpu_algorithms"
CUDNN_TESTS = "tests/worker_device_cuda_cudnn_on_gpu_test"
TOPICS = ("arithmetic", "lane", "attention", "classifier", "columns", "elementwise", "embedding", "images", "norm", "vector")
SHARED_MEMORY_TOPICS = ("attention", "classifier", "columns", "norm")  # kernels whose threads meet in it

TOKENS, VOCABULARY = 4 << 20, 50257
LENGTH, WIDTH, LAYERS = 1024, 768, 12
# Dense, of tensor cores for bf16 and outside them for fp32; in FLOP per second, from the makers' data sheets.
PEAKS = {"H200": {"bf16": 989e12, "fp32": 67e12}, "H100": {"bf16": 989e12, "fp32": 67e12},
         "A100": {"bf16": 312e12, "fp32": 19.5e12}, "B200": {"bf16": 2250e12, "fp32": 75e12}}


def machine(bench):
    def processor():
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")
        memory = int(pathlib.Path("/proc/meminfo").read_text().split()[1]) / (1 << 20)
        return f"{len(os.sched_getaffinity(0))} cores of {model}, {memory:.0f} GiB, Linux {os.uname().release}"

    def nvidia_smi():
        need("nvidia-smi")
        fields = "name,driver_version,memory.total,clocks.max.sm,compute_mode,mig.mode.current"
        return bench.command(["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"], 60).strip().replace("\n", "; ")

    def libraries():
        found = {}
        for folder in library_folders():
            for path in sorted(folder.glob("lib*.so.*")):
                name = re.match(r"lib(cublasLt|cudnn|nvrtc|nccl)\.so\.(\d.*)", path.name)
                if name and name.group(1) not in found:
                    found[name.group(1)] = f"{version_of(bench, name.group(1), path)} in {folder}"
        if not found:
            raise Skip("none found")
        return ", ".join(f"{name} {where}" for name, where in sorted(found.items())), found

    def tools():
        return ", ".join(tool for tool in ("compute-sanitizer", "ncu", "nvcc", "cuda-gdb") if shutil.which(tool)) or "none"

    def pytorch():
        why = why_no_torch(bench)
        if why:
            raise Skip(why)
        return bench.made["torch"]

    for what, make in (("processor", processor), ("nvidia-smi", nvidia_smi), ("CUDA's libraries", libraries),
                       ("tools", tools), ("PyTorch", pytorch)):
        bench.check(what, make)


def version_of(bench, library, path):
    """As the library itself says it; else as its name does."""
    call = {"cublasLt": "cublasLtGetVersion", "cudnn": "cudnnGetVersion"}.get(library)
    if call:
        code = f"import ctypes; f = ctypes.CDLL({str(path)!r}).{call}; f.restype = ctypes.c_size_t; print(f())"
        try:
            return bench.command([sys.executable, "-c", code], 30).strip()
        except BenchError:
            pass
    return path.resolve().name.split(".so.")[-1]


def need(tool):
    if shutil.which(tool) is None:
        raise Skip(f"no {tool}")


def library_folders():
    """Where dtrun-worker looks, but for the loader's own list."""
    for variable in ("DTRUN_CUDA_LIBRARY_PATH", "LD_LIBRARY_PATH"):
        yield from (pathlib.Path(folder) for folder in os.environ.get(variable, "").split(":") if folder)
    yield from map(pathlib.Path, ("/usr/local/cuda/lib64", "/usr/lib/x86_64-linux-gnu"))
    for folder in python_folders():
        yield from sorted(folder.glob("nvidia/*/lib"))


def python_folders():
    """Packages of the Python that `python3` is, which need not be this one."""
    asked = subprocess.run(["python3", "-c", "import sys; print('\\n'.join(sys.path))"], capture_output=True, text=True)
    return [pathlib.Path(line) for line in asked.stdout.splitlines() if line]


def why_no_torch(bench):
    """"" if `python3` has a PyTorch that sees a GPU."""
    if "no_torch" not in bench.made:
        probe = "import torch; print(torch.__version__, torch.cuda.is_available())"
        try:
            version, there = bench.command(["python3", "-c", probe], 120).split()[-2:]
            bench.made["torch"] = version
            bench.made["no_torch"] = "" if there == "True" else f"PyTorch {version} sees no GPU"
        except BenchError:
            bench.made["no_torch"] = "python3 has no PyTorch"
    return bench.made["no_torch"]


def gpus(bench):
    def shown():
        text = bench.program(["bin/dtrun", "gpus"], 90)
        bench.made["gpus"] = text
        if bench.sees_device() and "no GPU for programs" in text:
            raise BenchError("there is a GPU's device file, but dtrun sees no GPU", text)
        return "; ".join(line for line in text.splitlines() if line)

    bench.check("dtrun gpus", shown)


def text_config(bench, device, bf16, steps):
    """A small GPT-2 with dropout, on any bytes, in steps of 2 microbatches."""
    text = bench.scratch / "text"
    if not text.exists():
        text.write_bytes(bytes(random.Random(1).choices(range(32, 127), k=1 << 18)))
    return {"device": device,
            "model": {"type": "gpt2", "n_layer": 2, "n_head": 4, "n_embd": 128, "n_positions": 64, "dropout": 0.1},
            "data": {"type": "text", "path": str(text), "sequence_length": 64, "test_fraction": 0.01},
            "train": {"max_steps": steps, "global_batch_size": 8, "micro_batch_size": 4, "optim": "adamw", "learning_rate": 1e-3,
                      "max_grad_norm": 1.0, "bf16": bf16, "logging_steps": 1, "eval_steps": 0, "save_steps": 0}}


def last_hash(metrics):
    if not events(metrics, "end"):
        raise BenchError("metrics.jsonl has no end")
    return events(metrics, "end")[-1]["params_sha256"]


def cpu(bench):
    def train():
        metrics = bench.train(text_config(bench, "cpu", False, 24), 120)
        return f"24 steps, params_sha256 {last_hash(metrics)[:12]}"

    bench.check("a tiny GPT-2 on the CPU", train)


def summary_of_tests(out):
    found = re.search(r"test cases: +(\d+) \| +(\d+) passed", out)
    if not found or found.group(1) == "0":
        raise BenchError("no test ran", out)
    return f"{found.group(2)} cases"


def tests(bench):
    for topic in TOPICS:
        arguments = [GPU_TESTS, f"--source-file=*/{topic}_test.cc"]
        bench.check(topic, lambda arguments=arguments: summary_of_tests(bench.program(arguments, 60)))

def sanitizer(bench):
    def sanitized(tool, topic):
        need("compute-sanitizer")
        program = bench.build / GPU_TESTS
        out = bench.command(["compute-sanitizer", "--tool", tool, "--error-exitcode", "9", program,
                             f"--source-file=*/{topic}_test.cc"], 90, bench.environment())
        return summary_of_tests(out)

    for topic in SHARED_MEMORY_TOPICS[:1] if bench.quick else SHARED_MEMORY_TOPICS:
        bench.check(f"racecheck, {topic}", sanitized, "racecheck", topic)
    for topic in ("vector",) if bench.quick else ("lane", "vector", "embedding", "images"):
        bench.check(f"memcheck, {topic}", sanitized, "memcheck", topic)


def cudnn(bench):
    bench.check("plans against references", lambda: summary_of_tests(bench.program([CUDNN_TESTS], 90)))


def determinism(bench, device="cuda", steps=600):
    for bf16 in (False, True):
        what = "bf16" if bf16 else "fp32"
        config = text_config(bench, device, bf16, steps)

        def once(config=config):
            found = last_hash(bench.train(config, 90))
            return f"params_sha256 {found[:12]}", found

        first = bench.check(f"{what}, a run", once)

        def again(environment, first=first, config=config):
            if first is None:
                raise Skip("there is nothing to compare with")
            found = last_hash(bench.train(config, 90, environment))
            if found != first:
                raise BenchError(f"params_sha256 is {found[:12]}, not {first[:12]}")
            return "the same"

        bench.check(f"{what}, again", again, {})
        bench.check(f"{what}, each launch waited for", again, {"CUDA_LAUNCH_BLOCKING": "1", "DTRUN_CUDA_GRAPHS": "0"})
        bench.check(f"{what}, kernel by kernel", again, {"DTRUN_CUDA_GRAPHS": "0"})
        bench.check(f"{what}, after kill -9", lambda first=first, config=config: after_kill(bench, config, first))


def after_kill(bench, config, first):
    """Kills the worker in the middle of the run; dtrun starts another one, which goes on from a checkpoint."""
    if first is None:
        raise Skip("there is nothing to compare with")
    output = bench.folder()
    steps = config["train"]["max_steps"]
    config = {**config, "output_dir": str(output / "run"), "train": {**config["train"], "save_steps": steps // 8}}
    (output / "job.json").write_text(json.dumps(config))
    killed = []

    def kill():
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not ended.wait(0.005):
            if any(line["event"] == "train" and line["step"] >= steps // 4 for line in complete_metrics(output)):
                for pid in workers_of(output):
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)
                return

    ended = threading.Event()
    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    try:
        bench.program(["bin/dtrun", "--standalone", "--nproc_per_node", "1", "--max_restarts", "1", str(output / "job.json")], 120,
                      {"DTRUN_BENCH_RUN": str(output)})
    finally:
        ended.set()
        killer.join()
    metrics = read_metrics(output)
    shutil.rmtree(output, ignore_errors=True)
    if not killed or len({line["generation"] for line in events(metrics, "start")}) < 2:
        raise BenchError("the worker was gone before it could be killed")
    if last_hash(metrics) != first:
        raise BenchError(f"params_sha256 is {last_hash(metrics)[:12]}, not {first[:12]}")
    return f"the same, killed after step {steps // 4} or later"


def complete_metrics(output):
    """While it is written its last line may be half there."""
    try:
        return read_metrics(output)
    except ValueError:
        return []


def workers_of(output):
    for pid in processes_with(f"DTRUN_BENCH_RUN={output}"):
        try:
            if pathlib.Path(f"/proc/{pid}/comm").read_text().strip() == "dtrun-worker":
                yield pid
        except OSError:
            pass


class Nodes:
    """Nodes of one worker each on this machine, all on the first GPU: to NCCL each is a host of its own."""

    def __init__(self, bench, count, config, restarts):
        self.output = bench.folder()
        (self.output / "job.json").write_text(json.dumps({**config, "output_dir": str(self.output / "run")}))
        with socket.socket() as any_port:
            any_port.bind(("127.0.0.1", 0))
            endpoint = f"127.0.0.1:{any_port.getsockname()[1]}"
        options = ["--nnodes", str(count), "--nproc_per_node", "1", "--rdzv_endpoint", endpoint, "--rdzv_id", "ranks",
                   "--max_restarts", str(restarts), str(self.output / "job.json")]
        self.bench, self.logs = bench, [self.output / f"{node}.log" for node in range(count)]
        self.options = [(options, {**bench.environment(), "NCCL_HOSTID": f"host{node}", "NCCL_MAX_NCHANNELS": "1", "NCCL_SOCKET_IFNAME": "lo",
                                   "DTRUN_LOG_LEVEL": "debug", "DTRUN_BENCH_RUN": str(self.output)})
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
    steps, kills = (40, 2) if bench.quick else (600, 20)

    def job(bf16):
        config = text_config(bench, "cuda", bf16, steps)
        config["train"]["micro_batch_size"] = 1
        if bench.quick:
            config["model"].update(n_embd=32, n_positions=16)
            config["data"]["sequence_length"] = 16
        return config

    firsts = {}
    for bf16 in (False, True):
        what = "bf16" if bf16 else "fp32"
        firsts[what] = bench.check(f"{what}, 1 rank", lambda bf16=bf16: (lambda found: (f"params_sha256 {found[:12]}", found))(
            last_hash(bench.train(job(bf16), 90))))
        for count in (2, 4):
            def same(bf16=bf16, what=what, count=count):
                nodes = Nodes(bench, count, job(bf16), 0)
                nodes.run(90)
                return compared(read_metrics(nodes.output), firsts[what])

            bench.check(f"{what}, {count} ranks on one GPU", same)

    bench.check(f"{kills} times SIGKILL in mid-training", lambda: killed_ranks(bench, job(False), firsts["fp32"], kills))


def compared(metrics, first):
    if first is None:
        raise Skip("there is nothing to compare with")
    if last_hash(metrics) != first:
        raise BenchError(f"params_sha256 is {last_hash(metrics)[:12]}, not {first[:12]}")
    return "the same"


def killed_ranks(bench, config, first, kills):
    """Kills a worker each time that training has gone on since the last time."""
    nodes, random_rank, done = Nodes(bench, 3, config, kills), random.Random(1), []

    def kill(programs):
        seen = 0
        while len(done) < kills and not any(program.ended() for program in programs):
            time.sleep(0.01)
            step = max((line["step"] for line in events(complete_metrics(nodes.output), "train")), default=0)
            workers = sorted(workers_of(nodes.output))
            if step < seen + 2 or len(workers) < len(programs):
                continue
            os.kill(random_rank.choice(workers), signal.SIGKILL)
            done.append(step)
            seen = step

    out = nodes.run(150, kill)
    text = compared(read_metrics(nodes.output), first)
    if not done:
        raise BenchError("no worker could be killed", out)
    lost = len(re.findall(r"the GPU failed while", out))
    took = [int(ms) for ms in re.findall(r"gave up NCCL's connections in (\d+) ms", out)]
    numbers = {"kills": len(done), "contexts_lost": lost, "abort_ms": took}
    aborts = f"{len(took)} aborts, median {statistics.median(took):.0f} ms, max {max(took)} ms" if took else "no abort was told"
    return f"{text}; {len(done)} kills, {lost} of the survivors' contexts lost with them; {aborts}", numbers


def tokens(bench):
    """A file of random tokens, those that are rare in text as rare here."""
    folder = bench.scratch / "tokens"
    if not folder.exists():
        folder.mkdir()
        chosen = random.Random(1)
        block = array.array("H", (min(int(chosen.paretovariate(0.6)) - 1, VOCABULARY - 1) for _ in range(1 << 18)))
        for name, blocks in (("train.bin", TOKENS >> 18), ("val.bin", 1)):
            with open(folder / name, "wb") as file:
                for _ in range(blocks):
                    block.tofile(file)
    return folder


def gpt2_config(bench, batch, bf16, steps):
    return {"device": "cuda",
            "model": {"type": "gpt2", "n_layer": LAYERS, "n_head": 12, "n_embd": WIDTH, "n_positions": LENGTH},
            "data": {"type": "tokens", "path": str(tokens(bench)), "sequence_length": LENGTH, "vocab_size": VOCABULARY},
            "train": {"max_steps": steps, "global_batch_size": batch, "micro_batch_size": batch, "optim": "adamw",
                      "learning_rate": 1e-4, "weight_decay": 0.1, "max_grad_norm": 1.0, "bf16": bf16,
                      "logging_steps": max(1, steps // 6), "eval_steps": 0, "save_steps": 0}}


def rate_of(metrics, key):
    """All samples over all time, the first interval left out."""
    rates = [line[key] for line in events(metrics, "train")][1:]
    if not rates:
        raise BenchError("metrics.jsonl has too few lines of training")
    return statistics.harmonic_mean(rates)


def gpt2_flops(parameters):
    """Of a token, forward and backward: attention as if it saw all tokens before, and as if it saw all."""
    attention = LAYERS * WIDTH * LENGTH
    return {"6N+6LCT": 6 * parameters + 6 * attention, "6N+12LCT": 6 * parameters + 12 * attention}


def peak_of(bench, number_format):
    shown = bench.made.get("gpus") or bench.program(["bin/dtrun", "gpus"], 90)
    return next((peak[number_format] for name, peak in PEAKS.items() if name in shown), None)


def gpt2_with_dtrun(bench, batch, number_format, steps):
    metrics = bench.train(gpt2_config(bench, batch, number_format == "bf16", steps), 120)
    rate = rate_of(metrics, "tokens_per_second")
    flops = gpt2_flops(events(metrics, "start")[0]["parameters"])
    numbers = {"tokens_per_second": rate, "peak_bytes": events(metrics, "train")[-1].get("gpu_memory_peak")}
    text = f"{rate:,.0f} tokens/s"
    peak = peak_of(bench, number_format)
    for name, count in flops.items():
        numbers[f"flops_{name}"] = rate * count
        text += f", {rate * count / 1e12:.0f} TFLOP/s" + (f" = {rate * count / peak:.1%}" if peak else "") + f" ({name})"
    if numbers["peak_bytes"]:
        text += f", {numbers['peak_bytes'] / (1 << 30):.1f} GiB"
    return text, numbers


def with_torch(bench, model, batch, number_format, steps, more, unit, per_sample, limit_s=150):
    why = why_no_torch(bench)
    if why:
        raise Skip(why)
    argv = ["python3", ROOT / "scripts/bench_gpu_torch.py", model, "--batch", str(batch), "--steps", str(steps), *more]
    out = bench.command(argv + (["--bf16"] if number_format == "bf16" else []), limit_s)
    made = json.loads(out.strip().splitlines()[-1])
    rate = made["samples_per_second"] * per_sample
    return f"{rate:,.0f} {unit}, {made['peak_bytes'] / (1 << 30):.1f} GiB", {"rate": rate, **made}


def ratio(bench, what, ours, theirs):
    ours, theirs = [x for x in ours if x], [x for x in theirs if x]
    if ours and theirs:
        bench.add(what, "ok", f"{statistics.mean(ours) / max(theirs):.2f} ×", statistics.mean(ours) / max(theirs))


def gpt2(bench):
    # The batch that matters most comes first: time may run out.
    compiled = [("compiled, cuDNN", ["--compile", "--attention", "cudnn"]),
                ("compiled, flash", ["--compile", "--attention", "flash"])]
    eager = [("eager, cuDNN", ["--attention", "cudnn"]), ("eager, flash", ["--attention", "flash"])]
    cases = [(64, "bf16", 24, compiled + eager), (16, "bf16", 60, compiled), (4, "bf16", 120, compiled),
             (4, "fp32", 40, [("compiled", ["--compile"])])]
    for batch, number_format, steps, ways in cases[2:3] if bench.quick else cases:
        what = f"B={batch} {number_format}"
        ours, theirs = [], []
        ours.append(bench.check(f"{what}, dtrun", gpt2_with_dtrun, bench, batch, number_format, steps))
        for name, more in ways:
            theirs.append(bench.check(f"{what}, PyTorch, {name}", with_torch, bench, "gpt2", batch, number_format, steps, more,
                                      "tokens/s", LENGTH))
        if any(theirs):
            ours.append(bench.check(f"{what}, dtrun again", gpt2_with_dtrun, bench, batch, number_format, steps))
        ratio(bench, f"{what}, ratio to PyTorch's best", [x and x["tokens_per_second"] for x in ours],
              [x and x["rate"] for x in theirs])


MODELS = {
    "mlp": {"model": {"type": "mlp", "hidden_sizes": [512, 512]}, "batch": 256},
    "convnet": {"model": {"type": "convnet"}, "batch": 128},
}


def model_config(model, bf16, steps):
    return {"device": "cuda", "model": model["model"],
            "data": {"type": "synthetic", "samples": 20000, "shape": [1, 28, 28], "classes": 10},
            "train": {"max_steps": steps, "global_batch_size": model["batch"], "micro_batch_size": model["batch"],
                      "optim": "sgd", "learning_rate": 0.01, "momentum": 0.9, "bf16": bf16, "logging_steps": steps // 6,
                      "eval_steps": 0, "save_steps": 0}}


def models(bench):
    steps = 300 if bench.quick else 2000

    def with_dtrun(model, bf16):
        rate = rate_of(bench.train(model_config(model, bf16, steps), 60), "samples_per_second")
        return f"{rate:,.0f} samples/s", rate

    for name, model in MODELS.items():
        for number_format in ("fp32", "bf16"):
            what = f"{name} {number_format}"
            ours = bench.check(f"{what}, dtrun", with_dtrun, model, number_format == "bf16")
            theirs = [bench.check(f"{what}, PyTorch, {way}", with_torch, bench, name, model["batch"], number_format, steps, more,
                                  "samples/s", 1, 60)
                      for way, more in (("eager", []), ("compiled", ["--compile"]))]
            ratio(bench, f"{what}, ratio to PyTorch's best", [ours], [x and x["rate"] for x in theirs])


def times(bench):
    def first_step():
        config = gpt2_config(bench, 4, True, 2)
        config["train"]["logging_steps"] = 1
        since = time.time()
        metrics = bench.train(config, 90)
        return f"{events(metrics, 'train')[0]['time'] - since:.2f} s from dtrun's start to GPT-2 124M's first step"

    def stall():
        config = gpt2_config(bench, 4, True, 30)
        config["train"]["save_steps"] = 10
        stalls = [line["stall_milliseconds"] for line in events(bench.train(config, 120), "save")]
        if not stalls:
            raise BenchError("no checkpoint was written")
        return ", ".join(f"{stall:.0f} ms" for stall in stalls), stalls

    def graphs():
        def rate(value):
            metrics = bench.train(gpt2_config(bench, 4, True, 120), 60, {"DTRUN_CUDA_GRAPHS": value})
            return rate_of(metrics, "tokens_per_second")

        with_them, without, again = rate("1"), rate("0"), rate("1")
        gain = (with_them + again) / 2 / without
        return f"{gain:.2f} × the tokens/s of kernel by kernel, GPT-2 124M, B=4", gain

    bench.check("launch to first step", first_step)
    bench.check("stall of a checkpoint, GPT-2 124M", stall)
    bench.check("graphs", graphs)


def algorithms(bench):
    """The table that is found is the numbers of the first row."""
    # What matters most comes first: time may run out.
    jobs = {f"GPT-2 124M, B={batch} bf16": gpt2_config(bench, batch, True, 6) for batch in ((4,) if bench.quick else (64, 16, 4))}
    for name, model in MODELS.items():
        jobs.update({f"{name} {'bf16' if bf16 else 'fp32'}": model_config(model, bf16, 6) for bf16 in (True, False)})

    def search():
        folder, files = bench.folder(), []
        for number, config in enumerate(jobs.values()):
            files.append(folder / f"{number}.json")
            files[-1].write_text(json.dumps({**config, "output_dir": "run"}))
        limit_s = bench.limit(300)
        # A product of GPT-2's head at B=64 takes some seconds.
        out = bench.program([ALGORITHMS, "--seconds", f"{max(1, limit_s - 15):.0f}", *map(str, files)], limit_s)
        table = "".join(line + "\n" for line in out.splitlines() if re.match(r"[\[#0-9]", line))
        note(table)
        return table.splitlines()[-1].removeprefix("# "), table

    table = bench.check("rows", search)
    if not table:
        return
    times = r"^# (\d+)\.json: a microbatch's products take ([\d.]+) ms, by the first choices ([\d.]+) ms$"
    for job, takes, first in re.findall(times, table, re.MULTILINE):
        takes, first = float(takes), float(first)
        share = f", {takes / first:.3f} of that" if first else ""
        bench.add(list(jobs)[int(job)], "ok", f"{first:.3f} ms by the first choices, {takes:.3f} ms by the rows{share}",
                  {"milliseconds": takes, "by_first_choices": first})
    bench.add("tiles with split 1", "ok", re.search(r"^# with split 1, tiles (.*)", table, re.MULTILINE).group(1))

    def each_has_one():
        without = re.search(r"; (\d+) products without a good algorithm", table).group(1)
        if without != "0":
            bad = "\n".join(re.findall(r"^#   .*", table, re.MULTILINE))
            raise BenchError(f"{without} products without a good algorithm", bad)
        return "right, and the same bits each time"

    bench.check("an algorithm for each product", each_has_one)


PARTS = {"machine": machine, "gpus": gpus, "cpu": cpu, "tests": tests, "cudnn": cudnn, "determinism": determinism, "ranks": ranks,
         "gpt2": gpt2, "times": times, "models": models, "algorithms": algorithms,
         "sanitizer": sanitizer}
NEED_GPU = {"tests", "cudnn", "determinism", "ranks", "gpt2", "times", "models", "algorithms", "sanitizer"}
# So that no part takes the others' time. What is asked for by name may take all.
LIMITS_S = {"machine": 60, "tests": 90, "cudnn": 60, "determinism": 90, "ranks": 90, "gpt2": 260, "times": 90, "models": 90, "algorithms": 90}

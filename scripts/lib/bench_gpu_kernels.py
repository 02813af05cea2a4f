"""Which kernels compute a model's matmuls: the part `kernels` of scripts/bench_gpu, by Nsight Compute. A matmul that is
too slow does not tell why; the name of its kernel does."""

import csv
import re

from bench_common import BenchError
from bench_gpu_checks import Skip
from bench_gpu_jobs import gpt2_config, small_batch
from bench_gpu_machine import need

METRIC = "gpu__time_duration.sum"
LAUNCHES = 700  # what is tried out at the start, and a step or two
NAMES = r"\w*(?:nvjet_|cutlass\w*_\d|gemm_|xmma_)\w*|cublasLt::[\w:]+"  # of cuBLASLt's kernels


def kernels(bench):
    matmuls = {}

    def listed():
        out = said_by_ncu(bench)
        launches = launches_of(out)
        matmuls.update(products_of(launches))
        if not matmuls:
            raise BenchError(f"no matmul is among {len(launches)} kernels", out)
        seconds = sum(map(sum, matmuls.values()))
        nvjet = sum(sum(times) for name, times in matmuls.items() if "nvjet" in name)
        count = sum(map(len, matmuls.values()))
        return (f"{count} of {len(launches)} launches, {seconds * 1e3:.3f} ms, {nvjet / seconds:.0%} of it in Hopper's (nvjet)",
                {"launches": count, "seconds": seconds, "nvjet_share": nvjet / seconds})

    bench.check("kernels of matmuls", listed)
    for name, times in matmuls.items():
        bench.check(name, judged, name, times)


def said_by_ncu(bench):
    need("ncu")
    job = bench.job(gpt2_config(bench, small_batch(bench), True, 6))
    argv = ["ncu", "--target-processes", "all", "--clock-control", "none", "--metrics", METRIC, "--print-units", "base", "--csv",
            "-c", str(LAUNCHES), bench.build / "bin/dtrun", "profile", job, "--steps", "1", "device=cuda"]
    try:
        return bench.command(argv, 90, bench.environment())
    except BenchError as failure:
        if "ERR_NVGPUCTRPERM" in failure.output:
            raise Skip("ncu may not read this GPU's counters (ERR_NVGPUCTRPERM)") from None
        raise


def launches_of(out):
    """(name, seconds) of each kernel in what ncu wrote; what the program said stands before the table or in between."""
    table = [line for line in out.splitlines() if line.startswith('"')]
    head = next((number for number, line in enumerate(table) if '"Kernel Name"' in line), len(table))
    return [(row["Kernel Name"], float(row["Metric Value"].replace(",", "")) * 1e-9)  # nanoseconds: --print-units base
            for row in csv.DictReader(table[head:]) if row["Metric Name"] == METRIC]


def products_of(launches):
    """{name without what surrounds it: seconds of each launch}, what takes longest first. cuDNN has its own matmuls."""
    found = {}
    for name, seconds in launches:
        short = re.search(NAMES, name)
        if short and "cudnn" not in name:
            found.setdefault(short.group(), []).append(seconds)
    return dict(sorted(found.items(), key=lambda matmul: -sum(matmul[1])))


def judged(name, times):
    seconds = sum(times)
    text = f"{len(times)} launches, {seconds * 1e3:.3f} ms"
    if re.search(r"align[12](?!\d)", name):
        raise BenchError(f"{text}: MISSED, it is for operands that lie off 16 bytes")
    if "epilogue::impl" in name:
        raise BenchError(f"{text}: MISSED, a matmul's epilogue is computed apart")
    return text, {"launches": len(times), "seconds": seconds}

"""The parts of scripts/bench_gpu, in the order in which they are made, how much of the time each may take, and the three
calls of a first run. A part is a function of a Bench, and makes checks."""

from bench_gpu_bits import cudnn, determinism, repeats, sanitizer, tests
from bench_gpu_kernels import kernels
from bench_gpu_machine import cpu, gpus, machine
from bench_gpu_ranks import ranks
from bench_gpu_speed import gpt2, models, operations, parity, switches, times
from bench_gpu_ways import algorithms, attention, weights

LIMIT_S = 570
# The most telling parts come first: time may run out.
PARTS = {"machine": machine, "gpus": gpus, "tests": tests, "cudnn": cudnn, "kernels": kernels, "operations": operations,
         "gpt2": gpt2, "attention": attention, "weights": weights, "parity": parity, "times": times, "repeats": repeats,
         "determinism": determinism, "algorithms": algorithms, "switches": switches, "models": models, "cpu": cpu,
         "ranks": ranks, "sanitizer": sanitizer}
NEED_GPU = set(PARTS) - {"machine", "gpus", "cpu"}
# So that no part takes the others' time. A part that is asked for by name may take all.
LIMITS_S = {"machine": 50, "gpus": 20, "tests": 60, "cudnn": 40, "kernels": 50, "operations": 50, "gpt2": 300, "attention": 60,
            "weights": 60, "parity": 50, "times": 60, "repeats": 60, "determinism": 80, "algorithms": 120, "switches": 140,
            "models": 60, "ranks": 200}
# The parts of each, and GPT-2's micro batch sizes (none: the usual ones).
CALLS = {1: (("machine", "tests", "cudnn", "kernels", "operations"), (64, 4)),
         2: (("gpt2", "attention", "weights", "switches"), (64, 16)),
         3: (("algorithms", "repeats", "determinism", "parity", "times", "ranks"), ())}

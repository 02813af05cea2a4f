"""The parts of scripts/bench_gpu, in the order in which they are made, and how much of the time each may take. A part is a
function of a Bench, and makes checks."""

from bench_gpu_bits import cudnn, determinism, repeats, sanitizer, tests
from bench_gpu_machine import cpu, gpus, machine
from bench_gpu_ranks import ranks
from bench_gpu_speed import gpt2, models, operations, parity, switches, times
from bench_gpu_ways import algorithms, attention, weights

# What tells most comes first: time may run out.
PARTS = {"machine": machine, "gpus": gpus, "cpu": cpu, "tests": tests, "cudnn": cudnn, "determinism": determinism,
         "repeats": repeats, "attention": attention, "weights": weights, "operations": operations, "gpt2": gpt2, "parity": parity,
         "times": times, "algorithms": algorithms, "ranks": ranks, "switches": switches, "models": models,
         "sanitizer": sanitizer}
NEED_GPU = set(PARTS) - {"machine", "gpus", "cpu"}
# So that no part takes the others' time. What is asked for by name may take all.
LIMITS_S = {"machine": 60, "tests": 60, "cudnn": 40, "determinism": 60, "repeats": 60, "attention": 50, "weights": 30,
            "operations": 40, "gpt2": 270, "parity": 40, "times": 45, "algorithms": 60, "ranks": 60, "switches": 100, "models": 60}

"""Which way of computing is the fastest: the parts `attention`, `weights` and `algorithms` of scripts/bench_gpu."""

import json
import re

from bench_common import BenchError, note
from bench_gpu_checks import Skip
from bench_gpu_jobs import gpt2_jobs, model_jobs
from bench_gpu_peer import Torch
from bench_gpu_trials import lines_of, run_trials, whole_or_fail, write_jobs

ALGORITHMS = "tests/gpu_algorithms"
REPETITIONS = 20
WORTH = 0.01  # what is faster by less is no reason to change


def attention(bench):
    jobs = gpt2_jobs(bench)
    times = 3 if bench.sizes == "tiny" else REPETITIONS
    ending = run_trials(bench, "attention", write_jobs(bench, jobs), ["--times", times], jobs)
    ways = [line for line in ending.lines if "way" in line]
    for line in ways:
        bench.check(f"B={line['samples']}, {line['way']}", one_way, line)
    rates = [line["copied_bytes_per_second"] for line in ending.lines if "copied_bytes_per_second" in line]
    for batch in {line["samples"]: None for line in ways}:
        of_batch = {line["way"]: line for line in ways if line["samples"] == batch and not {"skipped", "fault"} & line.keys()}
        if {"cuDNN, deterministic", "cuDNN, atomic sums"} <= of_batch.keys() and rates:
            price_of_determinism(bench, batch, of_batch, max(rates))
    whole_or_fail(bench, ending)
    with Torch(bench) as torch:
        for batch in {line["samples"]: None for line in ways}:
            bench.check(f"B={batch}, PyTorch", by_torch, torch, batch)


def one_way(line):
    if "skipped" in line:
        raise Skip(line["skipped"])
    if "fault" in line:
        raise BenchError(line["fault"], json.dumps(line))
    values, texts = {"workspace_bytes": line["workspace_bytes"], "repetitions": line["times"], "other_bits": line["others"]}, []
    for step in ("forward", "backward"):
        milliseconds = line[f"{step}_microseconds"] / 1e3
        rate = line[f"{step}_flops"] / max(milliseconds, 1e-6) * 1e3
        values.update({f"{step}_milliseconds": milliseconds, f"{step}_flops_per_second": rate})
        texts.append(f"{step} {milliseconds:.3f} ms, {rate / 1e12:.0f} TFLOP/s")
    if line["others"] and line["way"] != "cuDNN, atomic sums":
        raise BenchError(f"other bits in {line['others']} of {line['times']} times", json.dumps(line))
    bits = f"other bits in {line['others']} of {line['times']} times" if line["others"] else "the same bits"
    return f"{'; '.join(texts)}; {line['workspace_bytes'] / (1 << 20):.0f} MiB; {bits}", values


def price_of_determinism(bench, batch, ways, bytes_per_second):
    """Beside what it takes to write the scores' gradient and to read it: all of it, or the half that causal attention has."""
    same, atomic = ways["cuDNN, deterministic"], ways["cuDNN, atomic sums"]
    extra = (same["backward_microseconds"] - atomic["backward_microseconds"]) / 1e3
    moved = 2 * 2 * same["samples"] * same["heads"] * same["tokens"] ** 2
    whole = moved / bytes_per_second * 1e3
    bench.add(f"B={batch}, price of the same bits", "ok",
              f"{extra:+.3f} ms backward; the scores' gradient moves in {whole:.3f} ms, its causal half in {whole / 2:.3f} ms at "
              f"measured {bytes_per_second / 1e12:.2f} TB/s",
              {"extra_milliseconds": extra, "whole_milliseconds": whole, "half_milliseconds": whole / 2,
               "copied_bytes_per_second": bytes_per_second})


def by_torch(torch, batch):
    found = torch.measure(["attention", "--batch", batch, "--steps", REPETITIONS])
    texts, values = [], {"kernels_of_own_choice": found["own choice"].get("kernels", "")}
    for name in ("flash", "cudnn", "own choice"):
        if "skipped" in found[name]:
            texts.append(f"{name}: none")
            continue
        for step in ("forward", "backward"):
            values[f"{name.replace(' ', '_')}_{step}_milliseconds"] = found[name][f"{step}_milliseconds"]
        texts.append(f"{name} {found[name]['forward_milliseconds']:.3f} + {found[name]['backward_milliseconds']:.3f} ms")
    return f"{'; '.join(texts)}; chose {values['kernels_of_own_choice'][:60]}", values


def weights(bench):
    """A layer's weight gradients, with the gradients of its inputs."""
    jobs = gpt2_jobs(bench)
    ending = run_trials(bench, "weights", write_jobs(bench, jobs), [], jobs)
    for name in jobs:
        lines = lines_of(ending, name, jobs)
        if lines:
            bench.check(name, of_weights, bench, name, lines)
    whole_or_fail(bench, ending)


def of_weights(bench, name, lines):
    if "skipped" in lines[0]:
        raise Skip(lines[0]["skipped"])
    took = {(line["algorithms"], line["side_streams"]): line["microseconds"] / 1e3 for line in lines if "microseconds" in line}
    inputs = took["in use", -1]
    for algorithms in ("in use", "split 1", "split", "apart"):
        mine = {streams: took[algorithms, streams] for streams in (0, 1, 2, 4)}
        bench.add(f"{name}, {algorithms}", "ok",
                  f"alone {took[algorithms, -2]:.3f} ms; with input gradients ({inputs:.3f} ms): one after the other "
                  f"{mine[0]:.3f}, on 1, 2, 4 side streams {mine[1]:.3f}, {mine[2]:.3f}, {mine[4]:.3f} ms",
                  {"alone_milliseconds": took[algorithms, -2], "input_gradients_milliseconds": inputs,
                   **{f"beside_on_{streams}_streams_milliseconds": ms for streams, ms in mine.items()}})
    ways = {way: ms for way, ms in took.items() if way[1] >= 0}
    way = min(ways, key=ways.get)
    usual = took["in use", 1]
    gain = 1 - ways[way] / usual if usual else 0
    splits = f"; splits {', '.join(lines[0]['splits'])}" if way[0] == "split" else ""
    values = {"fastest_milliseconds": ways[way], "fastest_side_streams": way[1], "now_milliseconds": usual, "gain": gain,
              "fastest_algorithms": way[0]}
    return (f"fastest: {way[0]}, {way[1]} side streams{splits}: {ways[way]:.3f} ms, now {usual:.3f}"
            + ("" if gain > WORTH else ": no reason to change")), values


def algorithms(bench):
    """The table that is found is a fact of the first row."""
    # The most important comes first: time may run out.
    jobs = {**gpt2_jobs(bench), **model_jobs(bench)}

    def search():
        files = write_jobs(bench, jobs)
        limit_s = bench.limit(300)
        # A matmul of GPT-2's head at B=64 takes some seconds.
        out = bench.program([ALGORITHMS, "--seconds", f"{max(1, limit_s - 15):.0f}", *map(str, files)], limit_s)
        table = "".join(line + "\n" for line in out.splitlines() if re.match(r"[\[#0-9]", line))
        note(table)
        summary = table.splitlines()[-1].removeprefix("# ")
        if not summary.endswith(" 0 without time"):
            bench.leave_out()
        return summary, {"table": table, **{f"products_{count.split(' ', 1)[1].replace(' ', '_')}": int(count.split()[0])
                                            for count in re.findall(r"\d+ without (?:room|time)", summary)},
                         "rows": int(summary.split()[0])}

    found = bench.check("rows", search)
    if not found:
        return
    table = found["table"]
    times = r"^# (\d+)\.json: a microbatch's matmuls take ([\d.]+) ms, by the first choices ([\d.]+) ms$"
    for job, takes, first in re.findall(times, table, re.MULTILINE):
        takes, first = float(takes), float(first)
        share = f", {takes / first:.3f} of that" if first else ""
        bench.add(list(jobs)[int(job)], "ok", f"{first:.3f} ms by the first choices, {takes:.3f} ms by the rows{share}",
                  {"milliseconds": takes, "by_first_choices_milliseconds": first})
    rates_by_terms(bench, table)
    tiles = re.search(r"^# with split 1, tiles change bits of (\d+) of (\d+) matmuls", table, re.MULTILINE)
    bench.add("tiles with split 1", "ok", tiles.group().removeprefix("# with split 1, tiles "),
              {"products_changed": int(tiles.group(1)), "matmuls": int(tiles.group(2))})

    def each_has_one():
        without = re.search(r"; (\d+) matmuls without a good algorithm", table).group(1)
        if without != "0":
            bad = "\n".join(re.findall(r"^#   .*", table, re.MULTILINE))
            raise BenchError(f"{without} matmuls without a good algorithm", bad)
        return "right, and the same bits each time"

    bench.check("an algorithm for each matmul", each_has_one)


def rates_by_terms(bench, table):
    """What matmuls of bf16 reach, by the length of their sums: K=768 is short."""
    rates = {}
    for m, n, k, number_format, microseconds in re.findall(
            r"^(\d+) (\d+) (\d+) \S+ \S+ \S+ (bf16\S*) .*# .*?: ([\d.]+) us;", table, re.MULTILINE):
        if float(microseconds) > 0 and int(m) * int(n) > 1 << 16:
            rates.setdefault(int(k), []).append(2 * int(m) * int(n) * int(k) / float(microseconds) * 1e6)
    for k, reached in sorted(rates.items()):
        bench.add(f"matmuls of K={k}", "ok", f"{min(reached) / 1e12:.0f} to {max(reached) / 1e12:.0f} TFLOP/s",
                  {"flops_per_second": reached})

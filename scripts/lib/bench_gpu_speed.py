"""How fast, beside PyTorch and beside what it could be: the parts `gpt2`, `parity`, `times`, `switches`, `models` and
`operations` of scripts/bench_gpu."""

import contextlib
import json
import statistics
import time

from bench_common import BenchError
from bench_gpu_checks import Skip, events
from bench_gpu_jobs import (MODELS, PEAKS, SIZES, bf16_batches, gpt2_config, gpt2_flops, gpt2_name, gpt2_steps, last_hash,
                            model_config, of_this_gpu, rate_of, repeating_tokens, small_batch, tokens)
from bench_gpu_peer import Torch, measured, words_of

# GPT-2 124M of 1024 tokens in bf16, tokens per second of one GPU.
FIRST_MARK = {"H200": 545_000, "H100": 515_000}
GOAL = {"H200": 580_000, "H100": 550_000}
STALL_MS = 5
GRAPHS_UP_TO = 4  # samples: a host launches PyTorch's kernels slower than a GPU computes them
LEAST_S = {"full": 40, "tiny": 5}  # that a batch of gpt2 takes
MOST_TOGETHER = 32  # samples: of more, two processes that train have no room beside each other on every GPU


def verdict(target, met):
    """Of a row: the words and the values."""
    return f"target {target}: {'met' if met else 'MISSED'}", {"met": int(met)}


def gpt2_with_dtrun(bench, batch, number_format):
    metrics = bench.train(gpt2_config(bench, batch, number_format == "bf16", gpt2_steps(bench, batch)), 120)
    rate = rate_of(metrics, "tokens_per_second")
    parameters = events(metrics, "start")[0]["parameters"]
    values = {"tokens_per_second": rate, "peak_bytes": events(metrics, "train")[-1].get("gpu_memory_peak"),
              "parameters": parameters}
    text = f"{rate:,.0f} tokens/s"
    peaks = of_this_gpu(bench, PEAKS)
    for name, count in gpt2_flops(bench, parameters).items():
        values[f"flops_per_second_{name}"] = rate * count
        text += f", {rate * count / 1e12:.0f} TFLOP/s"
        if peaks:
            values[f"mfu_{name}"] = rate * count / peaks[number_format]
            text += f" = {values[f'mfu_{name}']:.1%}"
        text += f" ({name})"
    if values["peak_bytes"]:
        text += f", {values['peak_bytes'] / (1 << 30):.1f} GiB"
    return text, values


def compiled(servers, requests):
    """At the same time: the GPU waits for the slowest of them alone."""
    since = time.monotonic()
    for torch, words in zip(servers, requests):
        torch.ask(words)
    for torch in servers:
        torch.receive()
    seconds = time.monotonic() - since
    return f"{seconds:.0f} s", {"seconds": seconds}


def best(rows, key):
    return max((row for row in rows if row), key=lambda row: row[key], default=None)


def mean(rows, key):
    return statistics.mean(row[key] for row in rows if row)


def gpt2(bench):
    """By turns: ours, theirs, ours, theirs. What matters most comes first, since time may run out: of batches, and of a batch
    our number and then that of PyTorch's probably fastest back end, before another is compiled."""
    batches = bench.batches or SIZES[bench.sizes]["batches"]
    for position, batch in enumerate(batches[:1] if bench.quick else batches):
        bench.detail = batch
        if bench.part_deadline_in() < LEAST_S[bench.sizes]:
            bench.leave_out(batch)
            bench.add(f"B={batch} bf16", "skipped", "no time was left")
            continue
        # A process for each batch: what PyTorch compiles when another size comes is for any size, and slower.
        with contextlib.ExitStack() as stack:
            servers = {name: stack.enter_context(Torch(bench)) for name in torch_ways(bench, batch)}
            one_batch(bench, batch, servers, rounds=2 if position < 3 and not bench.quick else 1)


def torch_ways(bench, batch):
    """The probably fastest comes first."""
    ways = {name: ["--tokens", tokens(bench) / "train.bin", "--compile", "--attention", back_end]
            for name, back_end in (("cuDNN", "cudnn"), ("flash", "flash"))}
    if batch <= GRAPHS_UP_TO:
        ways["cuDNN with graphs"] = [*ways["cuDNN"], "--mode", "reduce-overhead"]
    return ways


def one_batch(bench, batch, servers, rounds):
    what, steps, length = f"B={batch} bf16", gpt2_steps(bench, batch), SIZES[bench.sizes]["length"]
    more = torch_ways(bench, batch)

    def compile_all(names):
        bench.check(f"{what}, PyTorch compiles {', '.join(names)}", compiled, [servers[name] for name in names],
                    [words_of("gpt2", batch, "bf16", 1, more[name]) for name in names])

    ours, theirs = [], []
    for turn in range(rounds):
        again = ", again" if turn else ""
        ours.append(bench.check(f"{what}, dtrun{again}", gpt2_with_dtrun, bench, batch, "bf16"))
        if not turn and batch <= MOST_TOGETHER:
            compile_all(list(servers))
        for name, torch in servers.items():
            if not turn and batch > MOST_TOGETHER:
                compile_all([name])
            theirs.append(bench.check(f"{what}, PyTorch, {name}{again}", measured, torch, "gpt2", batch, "bf16", steps,
                                      more[name], "tokens", length))
    conclude(bench, what, batch, ours, theirs)


def same_model(ours, theirs):
    if ours != theirs:
        raise BenchError(f"{ours:,} parameters here, {theirs:,} in PyTorch")
    return f"{ours:,} parameters", {"parameters": ours}


def conclude(bench, what, batch, ours, theirs):
    if not any(ours):
        return
    rate = mean(ours, "tokens_per_second")
    peer = best(theirs, "tokens_per_second")
    if peer:
        bench.check(f"{what}, the same model", same_model, best(ours, "parameters")["parameters"], peer["parameters"])
        ratio = rate / peer["tokens_per_second"]
        words, values = verdict("above 1", ratio > 1)
        bench.add(f"{what}, ratio to PyTorch's best", "ok", f"{ratio:.3f} ×, {words}", {"ratio": ratio, **values})
        mine = best(ours, "tokens_per_second")["peak_bytes"]
        least = min(row["peak_bytes"] for row in theirs if row)
        if mine:
            words, values = verdict("below it", mine < least)
            bench.add(f"{what}, memory beside PyTorch's least", "ok",
                      f"{mine / (1 << 30):.1f} of {least / (1 << 30):.1f} GiB, {words}",
                      {"peak_bytes": mine, "torch_peak_bytes": least, **values})
    if batch == SIZES[bench.sizes]["batches"][0]:
        for name, table in (("first mark", FIRST_MARK), ("goal", GOAL)):
            target = of_this_gpu(bench, table)
            if target:
                words, values = verdict(f"{target:,}", rate >= target)
                bench.add(f"{what}, {name}", "ok", f"{rate:,.0f} tokens/s, {words}",
                          {"tokens_per_second": rate, "target_tokens_per_second": target, **values})


def parity(bench):
    """One step of GPT-2 in fp32 from the same weights and samples: whoever is faster shall compute the same."""
    def compare():
        samples = 2
        config = gpt2_config(bench, samples, False, 1)
        data = repeating_tokens(bench)
        config["data"]["path"] = str(data)
        # So small that the parameters stay as they are.
        config["train"].update(learning_rate=1e-12, weight_decay=0.0, logging_steps=1, save_steps=1)
        weights = bench.scratch / "parity.safetensors"
        ours = events(bench.train(config, 90, keep={"run/model.safetensors": weights}), "train")[0]
        with Torch(bench) as torch:
            theirs = torch.measure(["parity", "--batch", samples, "--weights", weights, "--tokens", data / "train.bin"])
        values = {}
        for name, tolerance in (("loss", 1e-4), ("grad_norm", 1e-3)):
            if not abs(ours[name] - theirs[name]) <= tolerance * abs(theirs[name]):
                raise BenchError(f"{name} is {ours[name]:.6g} here, {theirs[name]:.6g} in PyTorch")
            values.update({name: ours[name], f"torch_{name}": theirs[name]})
        return (f"loss {ours['loss']:.6f}, PyTorch {theirs['loss']:.6f}; norm of the gradient {ours['grad_norm']:.5f}, "
                f"PyTorch {theirs['grad_norm']:.5f}"), values

    bench.check("a step from the same weights", compare)


def models(bench):
    def with_dtrun(model, bf16, steps):
        metrics = bench.train(model_config(model, bf16, steps), 60)
        rate = rate_of(metrics, "samples_per_second")
        return f"{rate:,.0f} samples/s", {"samples_per_second": rate,
                                          "peak_bytes": events(metrics, "train")[-1].get("gpu_memory_peak")}

    with Torch(bench) as torch:
        for name, model in MODELS[bench.sizes].items():
            steps = min(model["steps"], 300) if bench.quick else model["steps"]
            for number_format in model["formats"]:
                what = f"{name} {number_format}"
                ours, theirs = [bench.check(f"{what}, dtrun", with_dtrun, model, number_format == "bf16", steps)], []
                for way, more in (("compiled", ["--compile"]), ("eager", [])):
                    theirs.append(bench.check(f"{what}, PyTorch, {way}", measured, torch, name, model["batch"], number_format,
                                              steps, more, "samples", 1))
                if any(theirs):
                    ours.append(bench.check(f"{what}, dtrun again", with_dtrun, model, number_format == "bf16", steps))
                peer = best(theirs, "samples_per_second")
                if peer and any(ours):
                    ratio = mean(ours, "samples_per_second") / peer["samples_per_second"]
                    words, values = verdict("above 1", ratio > 1)
                    bench.add(f"{what}, ratio to PyTorch's best", "ok", f"{ratio:.3f} ×, {words}", {"ratio": ratio, **values})


def times(bench):
    batch = small_batch(bench)

    def first_step():
        config = gpt2_config(bench, batch, True, 2)
        config["train"]["logging_steps"] = 1
        since = time.time()
        metrics = bench.train(config, 90)
        seconds = events(metrics, "train")[0]["time"] - since
        return f"{seconds:.2f} s from dtrun's start to GPT-2 124M's first step", {"seconds": seconds}

    def stall():
        config = gpt2_config(bench, batch, True, 30)
        config["train"]["save_steps"] = 10
        stalls = [line["stall_milliseconds"] for line in events(bench.train(config, 120), "save")]
        if not stalls:
            raise BenchError("no checkpoint was written")
        words, values = verdict(f"{STALL_MS} ms", max(stalls) <= STALL_MS)
        return f"{', '.join(f'{stall:.1f} ms' for stall in stalls)}, {words}", {"stall_milliseconds": stalls, **values}

    bench.check("launch to first step", first_step)
    bench.check("stall of a checkpoint, GPT-2 124M", stall)


# Variables of the environment: the micro batch size to try them at, their name, and their values beside the usual one.
SWITCHES = {"graphs": (4, "DTRUN_TEST_CUDA_GRAPHS", ("0",)), "programmatic launches": (4, "DTRUN_TEST_CUDA_PROGRAMMATIC", ("0",)),
            "side streams": (16, "DTRUN_TEST_CUDA_SIDE_STREAMS", ("0", "2", "4")),
            "epilogues": (16, "DTRUN_CUDA_EPILOGUES", ("0", "bias,gelu", "sums"))}
OTHER_BITS = {"DTRUN_CUDA_EPILOGUES"}  # change with their values; each value's are a fact


def switches(bench):
    """Each between two runs without it: what changes with time changes for all. The bits must not change, but for OTHER_BITS."""
    for name, (batch, variable, values) in SWITCHES.items():
        batch = batch if bench.sizes == "full" else SIZES[bench.sizes]["batches"][-1]
        config = gpt2_config(bench, batch, True, gpt2_steps(bench, batch))

        def compare(config=config, variable=variable, values=values):
            rates, hashes = {}, {}
            for value in (None, *values, None):
                metrics = bench.train(config, 60, {variable: value} if value is not None else None)
                rates.setdefault(value, []).append(rate_of(metrics, "tokens_per_second"))
                hashes[value] = last_hash(metrics)
            usual = statistics.mean(rates.pop(None))
            other_bits = variable in OTHER_BITS
            if len(set(hashes.values())) > 1 and not other_bits:
                raise BenchError("the parameters are not the same", json.dumps(hashes))
            shown = ", ".join(f"{variable}={value} {rate / usual:.3f} ×" for value, (rate,) in rates.items())
            ratios = {f"ratio_{variable}={value}": rate / usual for value, (rate,) in rates.items()}
            bits = {f"bits_{variable}={value or 'usual'}": bits for value, bits in hashes.items()} if other_bits else {}
            same = f"{len(set(hashes.values()))} kinds of bits" if other_bits else "the same bits"
            return f"{usual:,.0f} tokens/s; {shown}; {same}", {"tokens_per_second": usual, **ratios, **bits}

        bench.check(f"{name}, B={batch}", compare)


def operations(bench):
    """The time of each operation of a step beside its floor, by `dtrun profile`."""
    for batch in bf16_batches(bench):
        bench.check(f"{gpt2_name(bench, batch)}, a step", profiled, bench, batch)


def profiled(bench, batch):
    job = bench.job(gpt2_config(bench, batch, True, 6))
    try:
        out = bench.program(["bin/dtrun", "profile", str(job), "--json", "--steps", "3", "device=cuda"], 90)
    except BenchError as failure:
        if "profile measures the CPU only" in failure.output:
            raise Skip("dtrun profile does not know GPUs yet") from None
        raise
    found, _ = json.JSONDecoder().raw_decode(out, out.index("{"))  # other lines may follow
    if found.get("device") != "cuda":
        raise Skip("dtrun profile does not know GPUs yet")
    for row in found["rows"]:
        bench.add(", ".join([f"B={batch}", row["what"], *filter(None, [row["part"]]), *{row["stream"]} - {"lane"}]), "ok",
                  f"{row['seconds'] * 1e3:.3f} ms, floor {row['floor_seconds'] * 1e3:.3f} ms ({row['of_ceiling']:.0%}), "
                  f"{row['share']:.1%} of the step",
                  {**{key: row[key] for key in ("seconds", "floor_seconds", "of_ceiling", "share", "launches")},
                   "stream": row["stream"]})
    ceiling = found["ceiling"]
    text = (f"{found['step_seconds'] * 1e3:.2f} ms, floor {found['floor_seconds'] * 1e3:.2f} ms at measured "
            f"{ceiling['flops_per_second'] / 1e12:.0f} TFLOP/s and {ceiling['bytes_per_second'] / 1e12:.2f} TB/s; gaps "
            f"{found['gap_seconds'] / found['timed_step_seconds']:.1%}")
    return text, {**{f"{key}_seconds": found[f"{key}_seconds"]
                     for key in ("step", "timed_step", "busy", "gap", "floor", "data", "update")}, **ceiling}

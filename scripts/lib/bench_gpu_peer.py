"""PyTorch beside dtrun: servers of bench_gpu_torch.py, so that what was compiled once can be measured by turns."""

import contextlib
import json
import subprocess
import threading

from bench_common import ROOT, BenchError
from bench_gpu_checks import Skip
from bench_gpu_machine import why_no_torch
from bench_processes import Program

SCRIPT = ROOT / "scripts/lib/bench_gpu_torch.py"
ANSWER_LIMIT_S = 200  # compiling GPT-2 takes most of a minute


class Torch:
    """One server, from its first request to the end of the `with` block."""

    def __init__(self, bench):
        self.bench, self.program, self.owes = bench, None, False  # owes: an answer not read yet

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    def start(self):
        why = why_no_torch(self.bench)
        if why:
            raise Skip(why)
        limit_s = self.bench.limit(self.bench.part_deadline_in())
        self.log = self.bench.folder() / "torch.log"
        with open(self.log, "w") as log:
            self.program = Program(["python3", SCRIPT, "--serve"], limit_s, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=log, text=True)

    def end(self):
        if self.program is not None:
            self.program.kill_all()
            with contextlib.suppress(BenchError), self.program:  # late: the waiter for an answer reports it
                pass
        self.program, self.owes = None, False

    def ask(self, words):
        """To be followed by receive()."""
        if self.owes or (self.program is not None and self.program.ended()):
            self.end()
        if self.program is None:
            self.start()
        self.owes = True
        try:
            print(" ".join(map(str, words)), file=self.program.process.stdin, flush=True)
        except BrokenPipeError:
            raise BenchError("PyTorch's process has ended", self.said()) from None

    def receive(self):
        """The answer; BenchError where it is none, or late: then the server is ended."""
        late = threading.Timer(self.bench.limit(ANSWER_LIMIT_S), self.program.kill_all)
        late.daemon = True
        late.start()
        line = self.program.process.stdout.readline()
        late.cancel()
        try:
            found = json.loads(line)
        except ValueError:
            raise BenchError("PyTorch did not answer", self.said() + line) from None
        self.owes = False
        if "error" in found:
            raise BenchError(f"PyTorch: {found['error']}", self.said())
        return found

    def said(self):
        return self.log.read_text(errors="replace")

    def measure(self, words):
        self.ask(words)
        return self.receive()


def words_of(model, batch, number_format, steps, more):
    return [model, "--batch", batch, "--steps", steps, *more, *(["--bf16"] if number_format == "bf16" else [])]


def measured(torch, model, batch, number_format, steps, more, unit, per_sample):
    """A row of it."""
    found = torch.measure(words_of(model, batch, number_format, steps, more))
    rate = found["samples_per_second"] * per_sample
    return (f"{rate:,.0f} {unit}/s, {found['peak_bytes'] / (1 << 30):.1f} GiB",
            {f"{unit}_per_second": rate, "peak_bytes": found["peak_bytes"], "parameters": found["parameters"]})

"""What the parts of scripts/bench_gpu share: checks that fail alone, the time that is left, programs of the build."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import textwrap
import time
import traceback
import uuid

from bench_common import ROOT, BenchError, note
from bench_processes import Program, processes_with

MARK = "DTRUN_BENCH_GPU"  # in the environment of all that is run
MIN_LEFT_S = 5
LAST_LINES = 15
REASON_WIDTH = 110
EXIT_SKIPPED = 77


class Skip(Exception):
    """A check that cannot be made here, and why."""


class NoTime(Skip):
    """One that a later call can make."""


class Bench:
    """The rows of the table, and a folder for what is trained, gone at the end. A row is {"part", "what", "status": "ok",
    "failed" or "skipped", "text", "numbers": {name with its unit: number or list of numbers}, "facts": {name: words}}; what
    no number tells, such as a hash or a version, is a fact."""

    def __init__(self, build, quick, limit_s, sizes="full", batches=()):
        self.build, self.quick, self.sizes, self.batches = build, quick, sizes, batches
        self.deadline = self.part_deadline = time.monotonic() + limit_s
        self.mark = uuid.uuid4().hex
        self.rows = []
        self.left_out = {}  # parts, and of each what was left out for want of time, where that can be asked for by itself
        self.part = ""
        self.detail = None  # of --batches, what the part is at
        self.uses, self.fallbacks = {}, []  # of the runs of a check
        self.scratch = pathlib.Path(tempfile.mkdtemp(prefix="dtrun-bench-gpu-"))
        self.no_gpu = None  # why, once it was asked; "" if there is one
        self.made = {}  # what parts share

    def __enter__(self):
        os.environ[MARK] = self.mark
        return self

    def __exit__(self, *_):
        # The caller of each program ends it, except one that was being started at Ctrl-C.
        for pid in processes_with(f"{MARK}={self.mark}"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        del os.environ[MARK]
        shutil.rmtree(self.scratch, ignore_errors=True)

    def any_failed(self):
        return any(row["status"] == "failed" for row in self.rows)

    def add(self, what, status, text, values=None):
        numbers = {name: value for name, value in (values or {}).items() if not isinstance(value, str) and value is not None}
        facts = {name: value for name, value in (values or {}).items() if isinstance(value, str)}
        self.rows.append({"part": self.part, "what": what, "status": status, "text": text, "numbers": numbers, "facts": facts})
        note(f"{self.part}: {what}: {status}{': ' if text else ''}{text}")

    def leave_out(self, detail=None):
        """For want of time. detail: a micro batch size of --batches."""
        details = self.left_out.setdefault(self.part, [])
        detail = self.detail if detail is None else detail
        if detail is not None and detail not in details:
            details.append(detail)

    def check(self, what, make, *arguments):
        """make() returns a text, or a text and values (a row's numbers and facts); raises Skip, or anything else where it
        fails. Returns the values; None unless all went well. A run that fell back on something fails with all its values:
        they are true, but of something else than what was to be measured."""
        note(f"{self.part}: {what} …")
        self.uses, self.fallbacks = {}, []
        try:
            made = make(*arguments)
            text, values = made if isinstance(made, tuple) else (made, {})
            if self.fallbacks:
                fallbacks = "; ".join(self.fallbacks)
                shown = textwrap.shorten(fallbacks, REASON_WIDTH, placeholder=" …")
                self.add(what, "failed", f"{text}; measured a fallback: {shown}",
                         {**self.uses, "fallbacks": fallbacks, **values})
            else:
                self.add(what, "ok", text, {**self.uses, **values})
            return values
        except Skip as reason:
            if isinstance(reason, NoTime):
                self.leave_out()
            self.add(what, "skipped", str(reason))
        except BenchError as failure:
            self.fail(what, str(failure), failure.output)
        except Exception as failure:
            self.fail(what, f"{type(failure).__name__}: {failure}", traceback.format_exc())
        return None

    def fail(self, what, why, output):
        lines = output.rstrip().splitlines()[-LAST_LINES:]
        self.add(what, "failed", textwrap.shorten(why, REASON_WIDTH, placeholder=" …"))
        if lines:
            note("its last lines:\n" + textwrap.indent("\n".join(lines), "  | "))

    def run_part(self, name, part, needs_gpu, limit_s):
        self.part = name
        self.part_deadline = min(self.deadline, time.monotonic() + limit_s)
        if needs_gpu and self.why_no_gpu():
            self.add("all of it", "skipped", self.why_no_gpu())
            return
        try:
            part(self)
        except Exception as failure:  # of the part itself: the others go on
            self.fail("the rest of it", f"{type(failure).__name__}: {failure}", traceback.format_exc())
        finally:
            self.detail = None

    def print_table(self):
        part = None
        for row in self.rows:
            if row["part"] != part:
                part = row["part"]
                print(part)
            print(f"  {row['what']:<46} {row['status']:<8} {row['text']}".rstrip())
        count = {status: sum(row["status"] == status for row in self.rows) for status in ("ok", "failed", "skipped")}
        print(", ".join(f"{number} {status}" for status, number in count.items()))
        if self.left_out:
            print(f"left out for time: {', '.join(map(self.words_for_left_out, self.left_out))}; run {self.later_call()}")

    def words_for_left_out(self, part):
        details = self.left_out[part]
        return part + (f" (B={', '.join(map(str, details))})" if details else "")

    def later_call(self):
        """Of what was left out for want of time."""
        batches = sorted({batch for details in self.left_out.values() for batch in details}, reverse=True)
        return " ".join(["scripts/bench_gpu --part", *self.left_out, *(["--batches", *map(str, batches)] if batches else [])])

    def report(self, interrupted):
        """What --json writes; docs/gpu.md says what is in it."""
        return {"version": 1, "interrupted": interrupted, "quick": self.quick, "sizes": self.sizes,
                "left_out": [self.words_for_left_out(part) for part in self.left_out], "rows": self.rows}

    def sees_device(self):
        return any(pathlib.Path("/dev").glob("nvidia[0-9]*"))

    def why_no_gpu(self):
        """"" where there is a GPU, or where dtrun cannot tell or is mistaken: then the parts shall show it."""
        if self.no_gpu is None and self.sees_device():
            self.no_gpu = ""
        if self.no_gpu is None:
            try:
                said = re.search(r"^no GPU.*", self.program(["bin/dtrun", "gpus"], 90), re.MULTILINE)
                self.no_gpu = said.group().replace("no GPU for programs that start here", "no GPU") if said else ""
            except (BenchError, Skip, OSError):
                self.no_gpu = ""
        return self.no_gpu

    def part_deadline_in(self):
        """Seconds that the part has left."""
        return self.part_deadline - time.monotonic()

    def limit(self, limit_s):
        left = self.part_deadline_in()
        if left < MIN_LEFT_S:
            raise NoTime("no time was left")
        return min(limit_s, left)

    def environment(self):
        """For programs of the build: a packed one brings its libraries."""
        libraries = ROOT / "lib"
        if not libraries.is_dir():
            return {}
        already = os.environ.get("LD_LIBRARY_PATH")
        return {"LD_LIBRARY_PATH": str(libraries) + (f":{already}" if already else "")}

    def command(self, argv, limit_s, environment=None):
        """What a program said on both streams; Skip if it ends with 77, BenchError if with another code but 0 or late."""
        program = Program(argv, self.limit(limit_s), environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        late = f"no end within {program.limit_s:.0f} s"
        out = ""
        try:
            with program:
                out = program.process.communicate()[0].decode(errors="replace")
        except BenchError:
            raise BenchError(late, out) from None
        if program.process.returncode == EXIT_SKIPPED:
            raise Skip(out.strip().splitlines()[-1] if out.strip() else "the program says so")
        if program.process.returncode != 0:
            raise BenchError(f"{pathlib.Path(argv[0]).name}: {program.ending()}", out)
        return out

    def program(self, argv, limit_s, environment=None):
        """Likewise of the build; the first of `argv` is its path there. Variables DTRUN_TEST_… are for the worker of tests."""
        tests = any(name.startswith("DTRUN_TEST_") for name in environment or {})
        path = (self.with_worker_of_tests() if tests else self.build) / argv[0]
        if not path.exists():
            raise Skip(f"{path} was not built")
        return self.command([path, *argv[1:]], limit_s, {**self.environment(), **(environment or {})})

    def with_worker_of_tests(self):
        """A folder with dtrun, and beside it a worker that launches as variables of the environment tell it."""
        site = self.scratch / "worker_of_tests"
        for program, target in (("bin/dtrun", "dtrun"), ("tests/stop_point_worker", "dtrun-worker")):
            if not (self.build / program).exists():
                raise Skip(f"{self.build / program} was not built")
            (site / "bin").mkdir(parents=True, exist_ok=True)
            if not (site / "bin" / target).exists():
                shutil.copy(self.build / program, site / "bin" / target)
        return site

    def folder(self):
        return pathlib.Path(tempfile.mkdtemp(dir=self.scratch))

    def job(self, config):
        """Its file, in a folder of its own that has the job's output, too."""
        job = self.folder() / "job.json"
        job.write_text(json.dumps({**config, "output_dir": str(job.parent / "run")}))
        return job

    def train(self, config, limit_s, environment=None, options=(), keep=None):
        """Trains with one worker in a folder of its own; the lines of metrics.jsonl. Checkpoints are removed. keep: {file
        below that folder: where it goes}."""
        job = self.job(config)
        try:
            self.program(["bin/dtrun", "--standalone", "--nproc_per_node", "1", *options, str(job)], limit_s, environment)
            for name, target in (keep or {}).items():
                shutil.move(job.parent / name, target)
            return self.metrics(job.parent)
        finally:
            shutil.rmtree(job.parent, ignore_errors=True)

    def metrics(self, output):
        """The lines of a run's metrics.jsonl; what it computed with gets into the row."""
        metrics = read_metrics(output)
        uses, fallbacks = told_of_gpu(metrics)
        self.uses.update(uses)
        for fallback in fallbacks:
            # A simulated GPU has no cuDNN, and its models are too small for cuBLASLt.
            of_library = re.search("cuDNN|cuBLASLt", fallback)
            if fallback not in self.fallbacks and (self.sizes == "full" or not of_library):
                self.fallbacks.append(fallback)
        return metrics


def read_metrics(output):
    path = output / "run/metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def told_of_gpu(metrics):
    """What a run on a GPU computed with, as facts of a row, and what it fell back on. The last word counts: what cannot be
    recorded as a graph, say, shows only in training."""
    if any(line.get("device") == "cpu" for line in events(metrics, "start")):
        return {}, []
    told = [line for line in metrics if line["event"] in ("start", "end") and "device_uses" in line]
    if not told:
        return {"uses": "not told"}, []
    return {f"uses_{name}": words for name, words in told[-1]["device_uses"].items()}, told[-1].get("device_fallbacks", [])


def events(metrics, name):
    return [line for line in metrics if line["event"] == name]

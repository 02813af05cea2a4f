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

from bench_common import BenchError, note
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
    """Prints a row for each check as soon as it is known, and adds it to `file` as a line of JSON: {"part", "what", "status":
    "ok", "failed" or "skipped", "text", "numbers": {name with its unit: number}, "facts": {name: words}}; what no number tells,
    such as a hash or a version, is a fact. What is trained lies in a folder that is gone at the end."""

    def __init__(self, build, quick, limit_s, tiny=False, file=None, goes_on=False):
        """goes_on: checks that an earlier call made, as `file` has it, are not made again."""
        self.build, self.quick, self.tiny, self.file = build, quick, tiny, file
        self.deadline = time.monotonic() + limit_s
        self.mark = uuid.uuid4().hex
        self.rows, self.left_out = [], []  # left_out: parts that there was too little time for
        self.part = ""
        self.uses, self.fallbacks = {}, []  # of the runs of a check
        self.no_gpu = None  # why, once it was asked; "" if there is one
        self.earlier = rows_made(file) if file and goes_on else {}
        if file:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.open("a" if goes_on else "w").close()
        self.scratch = pathlib.Path(tempfile.mkdtemp(prefix="dtrun-bench-gpu-"))

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
        numbers = {name: value for name, value in (values or {}).items() if isinstance(value, (int, float))}
        facts = {name: value for name, value in (values or {}).items() if isinstance(value, str)}
        row = {"part": self.part, "what": what, "status": status, "text": text, "numbers": numbers, "facts": facts}
        if not self.rows or self.rows[-1]["part"] != self.part:
            print(self.part)
        print(f"  {what:<40} {status:<8} {text}".rstrip(), flush=True)
        self.rows.append(row)
        if self.file:
            with open(self.file, "a") as file:
                file.write(json.dumps(row) + "\n")

    def check(self, what, make, *arguments):
        """make() returns a text, or a text and values (a row's numbers and facts); raises Skip, or anything else where it
        fails. Returns the values; None unless all went well. A run that fell back on something fails with all its values:
        they are true, but of something else than what was to be measured."""
        row = self.earlier.get((self.part, what))
        if row:
            return {**row["numbers"], **row["facts"]} if row["status"] == "ok" else None
        note(f"{self.part}: {what} …")
        self.uses, self.fallbacks = {}, []
        try:
            made = make(*arguments)
            text, values = made if isinstance(made, tuple) else (made, {})
            if self.fallbacks:
                fallbacks = "; ".join(self.fallbacks)
                self.add(what, "failed", f"{text}; measured a fallback: {shortened(fallbacks)}",
                         {**self.uses, "fallbacks": fallbacks, **values})
            else:
                self.add(what, "ok", text, {**self.uses, **values})
            return values
        except NoTime as reason:
            self.leave_out(what, str(reason))
        except Skip as reason:
            self.add(what, "skipped", str(reason))
        except BenchError as failure:
            self.fail(what, str(failure), failure.output)
        except Exception as failure:
            self.fail(what, f"{type(failure).__name__}: {failure}", traceback.format_exc())
        return None

    def leave_out(self, what, why="no time was left"):
        if self.part not in self.left_out:
            self.left_out.append(self.part)
        self.add(what, "skipped", why)

    def fail(self, what, why, output):
        lines = output.rstrip().splitlines()[-LAST_LINES:]
        self.add(what, "failed", shortened(why))
        if lines:
            note("its last lines:\n" + textwrap.indent("\n".join(lines), "  | "))

    def run_part(self, name, part, needs_gpu):
        self.part = name
        if needs_gpu and self.why_no_gpu():
            self.add("all of it", "skipped", self.why_no_gpu())
            return
        try:
            part(self)
        except Exception as failure:  # of the part itself: the others go on
            self.fail("the rest of it", f"{type(failure).__name__}: {failure}", traceback.format_exc())

    def conclude(self):
        count = {status: sum(row["status"] == status for row in self.rows) for status in ("ok", "failed", "skipped")}
        print(", ".join(f"{number} {status}" for status, number in count.items()))
        if self.left_out:
            print(f"left out for time: {', '.join(self.left_out)}; run scripts/bench_gpu --part {' '.join(self.left_out)}")

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

    def left(self):
        """Seconds."""
        return self.deadline - time.monotonic()

    def command(self, argv, limit_s, environment=None):
        """What a program said on both streams; Skip if it ends with 77, BenchError if with another code but 0 or late."""
        left = self.left()
        if left < MIN_LEFT_S:
            raise NoTime("no time was left")
        program = Program(argv, min(limit_s, left), environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        out = ""
        try:
            with program:
                out = program.process.communicate()[0].decode(errors="replace")
        except BenchError:
            if left < limit_s:
                raise NoTime(f"no end within the {left:.0f} s that were left") from None
            raise BenchError(f"no end within {limit_s:.0f} s", out) from None
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
        return self.command([path, *argv[1:]], limit_s, environment)

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

    def job(self, config):
        """Its file, in a folder of its own that has the job's output, too."""
        job = pathlib.Path(tempfile.mkdtemp(dir=self.scratch)) / "job.json"
        job.write_text(json.dumps({**config, "output_dir": str(job.parent / "run")}))
        return job

    def train(self, config, limit_s, environment=None, restarts=0):
        """The lines of metrics.jsonl of a job with one worker; the rest of its output is removed. What it computed with gets
        into the row."""
        job = self.job(config)
        try:
            self.program(["bin/dtrun", "--standalone", "--nproc_per_node", "1", "--max_restarts", str(restarts), str(job)],
                         limit_s, environment)
            metrics = read_metrics(job.parent)
        finally:
            shutil.rmtree(job.parent, ignore_errors=True)
        uses, fallbacks = told_of_gpu(metrics)
        self.uses.update(uses)
        for fallback in fallbacks:
            # A simulated GPU has no cuDNN, and its models are too small for cuBLASLt.
            if fallback not in self.fallbacks and not (self.tiny and re.search("cuDNN|cuBLASLt", fallback)):
                self.fallbacks.append(fallback)
        return metrics


def rows_made(file):
    """{(part, what): row} of the checks that an earlier call made. The last line of a killed one may be half there."""
    rows = {}
    for line in file.read_text().splitlines() if file.exists() else ():
        with contextlib.suppress(ValueError):
            row = json.loads(line)
            rows[row["part"], row["what"]] = row
    return {key: row for key, row in rows.items() if row["status"] != "skipped"}


def shortened(why):
    return textwrap.shorten(why, REASON_WIDTH, placeholder=" …")


def read_metrics(folder):
    path = folder / "run/metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def told_of_gpu(metrics):
    """What a run on a GPU computed with, as facts of a row, and what it fell back on. The last word counts: what cannot be
    recorded as a graph, say, shows only in training."""
    told = [line for line in metrics if line["event"] in ("start", "end") and "device_uses" in line]
    if not told:
        return {"uses": "not told"}, []
    return {f"uses_{name}": words for name, words in told[-1]["device_uses"].items()}, told[-1].get("device_fallbacks", [])


def events(metrics, name):
    return [line for line in metrics if line["event"] == name]

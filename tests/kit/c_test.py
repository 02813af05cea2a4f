"""The example in C of docs/worker-kit.md under the real dtrun: it says hello, counts, and keeps its count when a peer dies.
c_test.py DTRUN"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

SKIPPED = 77
PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/worker-kit.md"
CC = shutil.which("cc") or shutil.which("gcc")
DTRUN = ""
RUN_ID = f"kit-c-{os.getpid()}"


class CTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="dtrun-kit-c-"))
        self.addCleanup(shutil.rmtree, self.folder)
        (self.folder / "count.c").write_text(re.search(r"```c\n(.*?)```", PAGE.read_text(), re.DOTALL)[1])
        subprocess.run([CC, "-std=gnu99", "-Wall", "-Wextra", "-Werror", "-O1", "-fsanitize=address,undefined",
                        "-fno-sanitize-recover", "-o", "count", "count.c"], cwd=self.folder, check=True)

    def start(self, total, *options):
        with open(self.folder / "out", "w") as out:
            job = subprocess.Popen([DTRUN, "--rdzv_id", RUN_ID, "--nproc_per_node", "3", "--max_restarts", "9", "--progress", "none",
                                    "--log_dir", "logs", *options, "--no_python", "./count", str(total)],
                                   cwd=self.folder, stdout=out, stderr=subprocess.STDOUT)
        self.addCleanup(job.kill)
        return job

    def text(self):
        return (self.folder / "out").read_text(errors="replace")

    def events(self, name):
        log = self.folder / "logs" / RUN_ID / "events.jsonl"
        lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        return [line for line in lines if line["event"] == name]

    def status(self):
        told = subprocess.run([DTRUN, "status", "--json", RUN_ID], capture_output=True, text=True, check=False).stdout
        return next(iter(json.loads(told or "[]")), {})

    def wait_for(self, job, condition):
        end = time.monotonic() + 60
        while time.monotonic() < end and job.poll() is None:
            if found := condition():
                return found
            time.sleep(0.05)
        self.fail(f"{job.poll()} {self.text()}")

    def counts(self, job, above):
        return self.wait_for(job, lambda: self.status().get("progress", {}).get("step", 0) > above)

    def test_a_worker_is_killed_and_the_others_keep_their_counts(self):
        job = self.start(400, "--recovery", "memory")
        self.counts(job, 20)
        first, victim, last = (line["pid"] for line in self.events("worker_started"))
        os.kill(victim, signal.SIGKILL)
        recovered = self.wait_for(job, lambda: self.events("recovered"))[0]
        self.assertGreater(recovered["first_step"], 20)
        self.counts(job, recovered["first_step"])
        self.assertEqual(job.wait(120), 0, self.text())
        self.assertEqual({line["pid"] for line in self.events("worker_ready") if line["step"] > 20}, {first, last}, self.text())
        ended = [line["how"] for line in self.events("worker_ended")]
        self.assertEqual((len(ended), ended.count("exit code 0")), (4, 3), ended)

    def test_without_recovery_it_says_so(self):
        job = self.start(100, "--max_restarts", "0")
        self.assertEqual(job.wait(60), 1)
        self.assertIn("start it with --recovery memory", self.text())


if __name__ == "__main__":
    if CC is None:
        print("skipped: there is no C compiler")
        sys.exit(SKIPPED)
    DTRUN = sys.argv.pop(1)
    unittest.main(verbosity=2)

"""The example in C of docs/worker-kit.md under the real dtrun: it says hello, counts, and keeps its count when a peer dies.
c_test.py DTRUN"""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/support"))
import cases
from clock import eventually
from jobs import exit_code, lines_of, status

PAGE = ROOT / "docs/worker-kit.md"
CC = shutil.which("cc") or shutil.which("gcc")
DTRUN = ""
# GCC 12's sanitizers die at start in some of the address spaces that newer kernels make.
FIXED_ADDRESSES = ["setarch", "-R"] if subprocess.run(["setarch", "-R", "true"], capture_output=True).returncode == 0 else []
RUN_ID = f"kit-c-{os.getpid()}"
# What the example calls in the place of usleep: no process gets far beyond its 30th and its 100th step before it may.
PACED = r"""
#include <stdio.h>
#include <unistd.h>
int paced(unsigned us) {
  static int steps;
  const char *file = ++steps == 30 ? "killed" : steps == 100 ? "seen" : ".";
  if (steps == 30) puts("it waits"), fflush(stdout);
  while (access(file, F_OK)) usleep(us);
  return usleep(us / 20);
}
"""


class CTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="dtrun-kit-c-"))
        self.addCleanup(shutil.rmtree, self.folder)
        (self.folder / "count.c").write_text(re.search(r"```c\n(.*?)```", PAGE.read_text(), re.DOTALL)[1])
        (self.folder / "paced.c").write_text(PACED)
        for source, options in (("count.c", ["-Dusleep=paced"]), ("paced.c", [])):
            subprocess.run([CC, "-std=gnu99", "-Wall", "-Wextra", "-Werror", "-O1", "-fsanitize=address,undefined",
                            "-fno-sanitize-recover", *options, "-c", source], cwd=self.folder, check=True)
        subprocess.run([CC, "-fsanitize=address,undefined", "-o", "count", "count.o", "paced.o"], cwd=self.folder, check=True)

    def start(self, total, *options):
        with open(self.folder / "out", "w") as out:
            job = subprocess.Popen([*FIXED_ADDRESSES, DTRUN, "--rdzv_id", RUN_ID, "--nproc_per_node", "3", "--max_restarts", "9",
                                    "--progress", "none", "--log_dir", "logs", *options, "--no_python", "./count", str(total)],
                                   cwd=self.folder, stdout=out, stderr=subprocess.STDOUT)
        self.addCleanup(job.kill)
        return job

    def text(self):
        return (self.folder / "out").read_text(errors="replace")

    def events(self, name):
        return lines_of(self.folder / "logs" / RUN_ID / "events.jsonl", name)

    def wait_for(self, job, condition):
        found = eventually(lambda: condition() or job.poll() is not None and "it has ended")
        self.assertTrue(found and job.poll() is None, f"{job.poll()} {self.text()}")
        return found

    def test_a_worker_is_killed_and_the_others_keep_their_counts(self):
        job = self.start(200, "--recovery", "memory")
        self.wait_for(job, lambda: self.text().count("it waits") == 3)
        first, victim, last = (line["pid"] for line in self.events("worker_started"))
        os.kill(victim, signal.SIGKILL)
        (self.folder / "killed").touch()
        recovered = self.wait_for(job, lambda: self.events("recovered"))[0]
        self.assertGreater(recovered["first_step"], 20)
        self.wait_for(job, lambda: status(DTRUN, RUN_ID).get("progress", {}).get("step", 0) > recovered["first_step"])
        (self.folder / "seen").touch()
        self.assertEqual(exit_code(job), 0, self.text())
        self.assertEqual({line["pid"] for line in self.events("worker_ready") if line["step"] > 20}, {first, last}, self.text())
        ended = [line["how"] for line in self.events("worker_ended")]
        self.assertEqual((len(ended), ended.count("exit code 0")), (4, 3), ended)

    def test_without_recovery_it_says_so(self):
        job = self.start(100, "--max_restarts", "0")
        self.assertEqual(exit_code(job), 1)
        self.assertIn("start it with --recovery memory", self.text())


if __name__ == "__main__":
    if CC is None:
        cases.skip_all("there is no C compiler")
    DTRUN = sys.argv.pop(1)
    cases.run()

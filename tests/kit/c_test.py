"""worker/kit/c/count.c under the real dtrun: whatever is killed, its sum is right. c_test.py DTRUN"""

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
KIT = pathlib.Path(__file__).resolve().parents[2] / "worker/kit/c"
CC = shutil.which("cc") or shutil.which("gcc")
DTRUN = ""
TOTAL = 120


class CTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="dtrun-kit-c-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def compiled(self, *options):
        program = self.folder / "count"
        subprocess.run([CC, "-Wall", "-Wextra", "-Werror", "-O1", *options, "-o", program, KIT / "count.c"], check=True)
        return program

    def start(self, *options):
        program = self.compiled("-std=gnu99", "-fsanitize=address,undefined", "-fno-sanitize-recover")
        out = open(self.folder / "out", "w")
        self.addCleanup(out.close)
        return subprocess.Popen([DTRUN, "--nproc_per_node", "3", "--max_restarts", "20", "--progress", "none", *options, "--no_python",
                                 str(program), str(TOTAL)], stdout=out, stderr=subprocess.STDOUT)

    def text(self):
        return (self.folder / "out").read_text(errors="replace")

    def test_the_header_is_c99_and_cxx(self):
        self.compiled("-std=c99", "-D_GNU_SOURCE", "-pedantic")
        source = self.folder / "a.cc"
        source.write_text('#include "dtrun_worker.h"\nint main() { static dtrun_worker w; return dtrun_open(&w, 1) == -1 ? 0 : 1; }\n')
        program = self.folder / "a"
        subprocess.run(["c++", "-std=c++20", "-Wall", "-Wextra", "-Werror", f"-I{KIT}", "-o", program, source], check=True)
        self.assertEqual(subprocess.run([program], check=False).returncode, 0)

    def test_workers_are_killed_and_the_sum_is_right(self):
        job = self.start("--recovery", "memory")
        for generations in (1, 3, 5):  # one that breaks, and one that takes the replacement in, for each
            end = time.monotonic() + 60
            while time.monotonic() < end and job.poll() is None:
                newest = re.findall(r"step \d+ generation (\d+) of 3 pid (\d+)", self.text())
                if newest and int(newest[-1][0]) >= generations and len(newest) % 7 == 0:
                    os.kill(int(newest[-1][1]), signal.SIGKILL)
                    break
                time.sleep(0.005)
        self.assertEqual(job.wait(120), 0, self.text())
        self.assertEqual(set(re.findall(r"sum (\d+)", self.text())), {str(100 * sum(range(TOTAL)))}, self.text())
        self.assertEqual(len(re.findall(r"signal 9 \(SIGKILL\)\), restart", self.text())), 3, self.text())
        done = re.findall(r"(step \d+) generation \d+ of \d+ (pid \d+)", self.text())
        self.assertEqual(len(done), len(set(done)))

    def test_without_recovery_it_says_so(self):
        job = self.start("--max_restarts", "0")
        self.assertEqual(job.wait(60), 1)
        self.assertIn("start it with dtrun --recovery memory", self.text())


if __name__ == "__main__":
    if CC is None:
        print("skipped: there is no C compiler")
        sys.exit(SKIPPED)
    DTRUN = sys.argv.pop(1)
    unittest.main(verbosity=2)

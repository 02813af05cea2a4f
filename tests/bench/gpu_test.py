"""scripts/bench_gpu where there is no GPU, where something goes wrong, and packed.

  gpu_test.py BUILD [unittest options…]
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
LIMIT_S = 100
NEED_GPU = ("tests", "cudnn", "determinism", "ranks", "gpt2", "times", "models", "algorithms", "sanitizer")


def run(script, *options, **how):
    done = subprocess.run([script, *options], capture_output=True, text=True, timeout=LIMIT_S, **how)
    return done.returncode, done.stdout, done.stderr


def rows(table):
    """{(part, what): (status, text)}"""
    found, part = {}, None
    for line in table.splitlines():
        row = re.match(r"^  (.+?) +(ok|failed|skipped)(?: +(.*))?$", line)
        if row:
            found[part, row.group(1)] = (row.group(2), row.group(3) or "")
        else:
            part = line
    return found


class GpuTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="dtrun-bench-gpu-test-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def build_of(self, dtrun):
        """A build whose dtrun is a shell script."""
        program = self.folder / "build/bin/dtrun"
        program.parent.mkdir(parents=True)
        program.write_text(f"#!/bin/sh\n{dtrun}\n")
        program.chmod(0o755)
        return program.parent.parent

    def test_without_a_gpu_what_needs_one_is_skipped(self):
        if "no GPU" not in subprocess.run([BUILD / "bin/dtrun", "gpus"], capture_output=True, text=True).stdout:
            self.skipTest("there is a GPU")
        file = self.folder / "numbers.json"
        code, table, notes = run(SCRIPTS / "bench_gpu", "--quick", "--build", BUILD, "--json", file)
        self.assertEqual(code, 0, notes)
        found = rows(table)
        for part in NEED_GPU:
            status, text = found[part, "all of it"]
            self.assertEqual(status, "skipped")
            self.assertRegex(text, "^no GPU: ")
        self.assertEqual(found["cpu", "a tiny GPT-2 on the CPU"][0], "ok")
        self.assertEqual(len(json.loads(file.read_text())["rows"]), len(found))

    def test_what_fails_is_shown_with_its_last_words_and_the_rest_goes_on(self):
        if any(pathlib.Path("/dev").glob("nvidia[0-9]*")):
            self.skipTest("there is a GPU")
        build = self.build_of('[ "$1" = gpus ] && { echo "no GPU for programs that start here: a test"; exit 0; }\n'
                              "echo out of order; exit 3")
        code, table, notes = run(SCRIPTS / "bench_gpu", "--build", build, "--part", "cpu", "gpus", "gpt2")
        self.assertEqual(code, 1, notes)
        self.assertEqual(rows(table), {("cpu", "a tiny GPT-2 on the CPU"): ("failed", "dtrun: exit code 3"),
                                       ("gpus", "dtrun gpus"): ("ok", "no GPU for programs that start here: a test"),
                                       ("gpt2", "all of it"): ("skipped", "no GPU: a test")})
        self.assertIn("  | out of order", notes)

    def test_a_gpu_that_no_program_finds_makes_each_check_fail(self):
        build = self.build_of('[ "$1" = gpus ] && { echo "GPU  CUDA  name"; exit 0; }\necho no such device; exit 78')
        code, table, notes = run(SCRIPTS / "bench_gpu", "--quick", "--build", build, "--part", "tests", "determinism", "times")
        self.assertEqual(code, 1, notes)
        found = rows(table)
        self.assertEqual(found["determinism", "bf16, a run"], ("failed", "dtrun: exit code 78"))
        self.assertEqual(found["determinism", "bf16, after kill -9"], ("skipped", "there is nothing to compare with"))
        self.assertEqual(found["times", "launch to first step"], ("failed", "dtrun: exit code 78"))
        self.assertRegex(found["tests", "lane"][1], "was not built$")

    def test_what_hangs_is_ended_and_what_has_no_time_left_is_skipped(self):
        build = self.build_of('[ "$1" = gpus ] && exit 0\necho waiting; sleep 1000')
        begin = time.monotonic()
        code, table, notes = run(SCRIPTS / "bench_gpu", "--build", build, "--limit", "6", "--part", "cpu", "gpus", "times")
        self.assertLess(time.monotonic() - begin, 20)
        self.assertEqual(code, 1, notes)
        found = rows(table)
        self.assertEqual(found["cpu", "a tiny GPT-2 on the CPU"], ("failed", "no end within 6 s"))
        self.assertEqual(found["gpus", "dtrun gpus"], ("skipped", "no time was left"))
        self.assertIn("  | waiting", notes)

    def test_it_finds_what_is_not_deterministic(self):
        """A dtrun whose parameters are another's each time."""
        build = self.build_of(
            '[ "$1" = gpus ] && { echo "GPU  CUDA  name"; exit 0; }\n'
            'for job; do :; done; run=$(dirname "$job")/run; mkdir -p "$run"\n'
            'printf \'{"event":"end","params_sha256":"%s"}\\n\' "$(od -An -N8 -tx8 /dev/urandom | tr -d " ")" '
            '>"$run/metrics.jsonl"')
        code, table, notes = run(SCRIPTS / "bench_gpu", "--build", build, "--part", "determinism")
        self.assertEqual(code, 1, notes)
        found = rows(table)
        self.assertEqual(found["determinism", "fp32, a run"][0], "ok")
        self.assertRegex(found["determinism", "fp32, again"][1], "^params_sha256 is [0-9a-f]{12}, not [0-9a-f]{12}$")
        self.assertEqual(found["determinism", "fp32, after kill -9"],
                         ("failed", "the worker was gone before it could be killed"))

    def algorithms_of(self, program):
        """The part's rows and numbers where a shell script is the program that measures."""
        build = self.build_of('echo "GPU  CUDA  name"')
        (build / "tests").mkdir()
        script = build / "tests/gpu_algorithms"
        script.write_text(f"#!/bin/sh\n{program}\n")
        script.chmod(0o755)
        file = self.folder / "numbers.json"
        code, table, notes = run(SCRIPTS / "bench_gpu", "--quick", "--build", build, "--part", "algorithms", "--json", file)
        return code, {what: row for (_, what), row in rows(table).items()}, json.loads(file.read_text())["rows"], notes

    def test_several_ranks_on_one_gpu_that_is_stood_in_for(self):
        worker, nvml = BUILD / "tests/gpu_worker", BUILD / "tests/fake_nvml"
        if not worker.exists():
            self.skipTest("built without CUDA")
        build = self.folder / "build"
        (build / "bin").mkdir(parents=True)
        shutil.copy(BUILD / "bin/dtrun", build / "bin/dtrun")
        shutil.copy(worker, build / "bin/dtrun-worker")
        gpus = self.folder / "gpus.json"
        gpus.write_text(json.dumps({"gpus": [{"name": "NVIDIA H200", "uuid": "GPU-0", "bus": 16}]}))
        code, table, notes = run(SCRIPTS / "bench_gpu", "--quick", "--part", "ranks", "--build", build,
                                 env={**os.environ, "DTRUN_CUDA_LIBRARY_PATH": str(nvml), "DTRUN_FAKE_GPUS": str(gpus)})
        self.assertEqual(code, 0, table + notes)
        found = rows(table)
        for what in ("fp32, 2 ranks on one GPU", "fp32, 4 ranks on one GPU", "bf16, 4 ranks on one GPU"):
            self.assertEqual(found["ranks", what], ("ok", "the same"))
        status, text = found["ranks", "2 times SIGKILL in mid-training"]
        self.assertEqual(status, "ok")
        self.assertRegex(text, r"^the same; [12] kills, 0 of the survivors' contexts lost with them; \d+ aborts")

    def test_the_table_of_algorithms_is_told_and_compared_with_the_first_choices(self):
        """On the stand-ins for a GPU, and of the last job alone: a convnet."""
        program = BUILD / "tests/algorithms_on_cpu"
        if not program.exists():
            self.skipTest("built without CUDA's headers")
        code, found, numbers, notes = self.algorithms_of(f'for job; do :; done; exec {program} "$1" "$2" "$job"')
        self.assertEqual(code, 0, notes)
        self.assertRegex(found["rows"][1], r"^\d+ rows, \d+ of them not of the first choice; 0 products without a good "
                                           r"algorithm, 0 without room, 0 without time$")
        self.assertRegex(found["convnet fp32"][1], r"^[0-9.]+ ms by the first choices, [0-9.]+ ms by the rows, [0-9.]+ of that$")
        self.assertRegex(found["tiles with split 1"][1], r"^change bits of 0 of \d+ products$")
        self.assertEqual(found["an algorithm for each product"][0], "ok")
        table = numbers[0]["numbers"].splitlines()
        self.assertEqual(table[0], "[NVIDIA H100 (simulated), compute capability 9.0, 132 SMs, cuBLASLt 13.1.0]")
        self.assertEqual(sum(line[0].isdigit() for line in table), int(found["rows"][1].split()[0]))

    def test_a_product_without_a_good_algorithm_fails_and_keeps_the_table(self):
        program = BUILD / "tests/algorithms_on_cpu"
        if not program.exists():
            self.skipTest("built without CUDA's headers")
        code, found, numbers, notes = self.algorithms_of(
            f'for job; do :; done; {program} "$1" "$2" "$job" | sed "s/; 0 products without/; 2 products without/"')
        self.assertEqual(code, 1, notes)
        self.assertEqual(found["an algorithm for each product"], ("failed", "2 products without a good algorithm"))
        self.assertEqual(found["rows"][0], "ok")
        self.assertGreater(len(numbers[0]["numbers"].splitlines()), 3)

    def test_a_packed_folder_runs_elsewhere_with_an_empty_environment(self):
        packed, moved = self.folder / "packed", self.folder / "elsewhere"
        code, _, notes = run(SCRIPTS / "bench_gpu", "--build", BUILD, "--pack", packed)
        self.assertEqual(code, 0, notes)
        size = sum(path.stat().st_size for path in packed.rglob("*") if path.is_file())
        self.assertLess(size, 64 << 20)
        packed.rename(moved)
        code, table, notes = run(moved / "scripts/bench_gpu", "--quick", "--part", "gpus", "cpu",
                                 cwd="/", env={"PATH": "/usr/bin:/bin"})
        self.assertEqual(code, 0, notes)
        self.assertEqual(rows(table)["cpu", "a tiny GPT-2 on the CPU"][0], "ok")
        code, _, notes = run(SCRIPTS / "bench_gpu", "--build", BUILD, "--pack", moved)
        self.assertEqual(code, 1)
        self.assertIn("is not empty", notes)


if __name__ == "__main__":
    unittest.main()

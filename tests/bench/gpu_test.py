"""scripts/bench_gpu where there is no GPU, on a simulated one, where something goes wrong, and packed.

  gpu_test.py BUILD [unittest options…]
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
sys.path[:0] = [str(SCRIPTS / "lib"), str(SCRIPTS.parent / "tests/support")]
import cases
from bench_common import BenchError
from bench_gpu_checks import Bench
from bench_gpu_jobs import TINY
from bench_gpu_pack import CUDNN_TESTS, GPU_TESTS
from cases import long
from clock import eventually, soon

BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
TINY_PARAMETERS = 16 * (128 + 16) + 12 * 16 * 16 + 13 * 16 + 2 * 16  # of the tiny GPT-2: embeddings, a block, the last norm
A_GPU = 'echo "GPU  CUDA  name"; exit 0'
# A python3 that runs all but PyTorch, for which it answers as DTRUN_FAKE_TORCH says.
TORCH = r"""#!/bin/sh
case "$*" in *bench_gpu_torch.py*) ;; *) exec {python} "$@" ;; esac
echo $$ >>{folder}/torch_pids
case $DTRUN_FAKE_TORCH in
sleeps) exec sleep 1000 ;;
dies) echo out of everything >&2; exit 1 ;;
missing) echo '{{"skipped": "python3 has no PyTorch: a test"}}'; exit ;;
other) parameters=1 ;;
esac
echo '{{"tokens_per_second": 2, "peak_bytes": 4000000000, "parameters": '${{parameters:-{parameters}}}'}}'
"""


class GpuTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="dtrun-bench-gpu-test-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.build, self.json = self.folder / "build", self.folder / "rows.json"

    def program(self, name, script):
        """A shell script as a program of the build."""
        path = self.build / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def start(self, *options, env=None, script=SCRIPTS / "bench_gpu"):
        return subprocess.Popen([script, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env={**os.environ, **(env or {})})

    def bench(self, *options, code=0, env=None):
        """{what: (status, text)} of a run with `build`, and what was printed besides."""
        with self.start("--build", self.build, "--json", self.json, *options, env=env) as program:
            table, notes = program.communicate()
        self.assertEqual(program.returncode, code, table + notes)
        found = dict(re.findall(r"^  (.+?) +((?:ok|failed|skipped)(?: +.*)?)$", table, re.MULTILINE))
        return {what: tuple(re.split(" +", row, maxsplit=1)) for what, row in found.items()}, table + notes

    def rows(self):
        return [json.loads(line) for line in self.json.read_text().splitlines()]

    def gpu_stood_in_for(self, torch="answers"):
        """A build whose worker has a simulated GPU, and the environment for it; PyTorch has a stand-in too."""
        if not (BUILD / "tests/gpu_worker").exists():
            self.skipTest("built without CUDA's headers")
        for source, target in (("bin/dtrun", "bin/dtrun"), ("tests/gpu_worker", "bin/dtrun-worker"),
                               ("tests/gpu_worker", "tests/stop_point_worker")):
            (self.build / target).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(BUILD / source, self.build / target)
        (self.folder / "gpus.json").write_text(json.dumps({"gpus": [{"name": "NVIDIA H200", "uuid": "GPU-0", "bus": 16}]}))
        self.program("tools/python3", TORCH.format(python=sys.executable, folder=self.folder, parameters=TINY_PARAMETERS))
        return {"DTRUN_CUDA_LIBRARY_PATH": str(BUILD / "tests/fake_nvml"), "DTRUN_FAKE_GPUS": str(self.folder / "gpus.json"),
                "PATH": f"{self.build}/tools:{os.environ['PATH']}", "DTRUN_FAKE_TORCH": torch}

    def test_without_a_gpu_what_needs_one_is_skipped(self):
        if "no GPU" not in subprocess.run([BUILD / "bin/dtrun", "gpus"], capture_output=True, text=True).stdout:
            self.skipTest("there is a GPU")
        self.build = BUILD
        for call, parts in (("1", ["tests", "gpt2"]), ("2", ["tests", "gpt2", "determinism", "tests", "gpt2"])):
            found, _ = self.bench("--call", call)
            self.assertEqual([row["part"] for row in self.rows() if row["what"] == "all of it"], parts)
            self.assertRegex(found["all of it"][1], "^no GPU: ")
        self.assertEqual([row["status"] for row in self.rows() if row["what"] == "dtrun gpus"], ["ok"])

    def test_a_wrong_command_line_is_refused(self):
        for options in (("--part", "algorithms"), ("--call", "3"), ("--call", "1", "--part", "gpus"), ("--compare", "a", "b")):
            self.bench(*options, code=2)

    def test_what_fails_is_shown_with_its_last_words_and_the_rest_goes_on(self):
        self.program("bin/dtrun", "echo out of order; exit 3")
        found, said = self.bench("--quick", "--tiny", "--part", "gpus", "tests", "gpt2", "determinism", code=1)
        for what in ("dtrun gpus", "B=4, dtrun", "bf16, a run"):
            self.assertEqual(found[what], ("failed", "dtrun: exit code 3"))
        self.assertEqual(found["bf16, after kill -9"], ("skipped", "there is nothing to compare with"))
        self.assertRegex(found["cuDNN's plans"][1], "was not built$")
        self.assertIn("  | out of order", said)

    def test_what_hangs_is_ended(self):
        with Bench(self.build, False, 100) as bench:
            with self.assertRaisesRegex(BenchError, "^no end within 1 s$") as hung:
                bench.command(["sh", "-c", "echo waiting; sleep 1000"], 1)
            self.assertEqual(hung.exception.output, "waiting\n")

    def test_what_has_no_time_left_is_skipped_and_named(self):
        self.program("bin/dtrun", f'[ "$1" = gpus ] && {{ {A_GPU}; }}\nsleep 1000')
        soon(2)  # until 5 s are left, with which nothing is begun
        found, said = self.bench("--tiny", "--limit", "7", "--part", "determinism", "gpus")
        self.assertRegex(found["bf16, a run"][1], "^no end within the [567] s that were left$")
        self.assertEqual(found["dtrun gpus"], ("skipped", "no time was left"))
        self.assertIn("left out for time: determinism, gpus; run scripts/bench_gpu --part determinism gpus\n", said)

    def test_tests_that_fail_are_run_by_topic(self):
        self.program("bin/dtrun", A_GPU)
        self.program(GPU_TESTS, """case $1 in
            --list*) echo '<TestCase name="a" filename="tests/lane_test.cc"/><TestCase name="b" filename="tests/norm_test.cc"/>' ;;
            *norm*) echo 'test cases:  2 |  2 passed | 0 failed' ;;
            *) echo 'lane_test.cc:9: ERROR'; exit 1 ;;
            esac""")
        self.program(CUDNN_TESTS, "echo no cuDNN; exit 77")
        found, said = self.bench("--part", "tests", code=1)
        self.assertEqual(found, {"kernels, vectors, networks": ("failed", "gpu_device_tests: exit code 1"),
                                 "lane": ("failed", "gpu_device_tests: exit code 1"), "norm": ("ok", "2 cases"),
                                 "cuDNN's plans": ("skipped", "no cuDNN")})
        self.assertIn("  | lane_test.cc:9: ERROR", said)

    def test_it_finds_what_is_not_deterministic(self):
        """A dtrun whose parameters are another's each time."""
        self.program("tests/stop_point_worker", "exit 1")
        self.program("bin/dtrun", f'[ "$1" = gpus ] && {{ {A_GPU}; }}\n'
                     'for job; do :; done; run=$(dirname "$job")/run; mkdir -p "$run"\n'
                     'printf \'{"event":"start","generation":1}\\n{"event":"end","params_sha256":"%s"}\\n\' '
                     '"$(od -An -N8 -tx8 /dev/urandom | tr -d " ")" >"$run/metrics.jsonl"')
        found, _ = self.bench("--part", "determinism", code=1)
        self.assertEqual(found["fp32, a run"][0], "ok")
        self.assertRegex(found["fp32, again"][1], "^params_sha256 is [0-9a-f]{12}, not [0-9a-f]{12}$")
        self.assertEqual(found["bf16, after kill -9"], ("failed", "the worker was not killed"))

    def test_the_parts_run_on_a_gpu_that_is_stood_in_for(self):
        found, _ = self.bench("--tiny", "--part", "gpus", "gpt2", env=self.gpu_stood_in_for())
        self.assertIn("NVIDIA H200", found["dtrun gpus"][1])
        self.assertEqual([row["what"] for row in self.rows() if row["part"] == "gpt2"][:5],
                         ["B=4, dtrun", "B=4, PyTorch, cudnn attention", "B=4, dtrun, again", "B=4, PyTorch, flash attention",
                          "B=4, 2 runs beside PyTorch's best of 2"])
        self.assertRegex(found["B=2, dtrun"][1], r"^[\d,]+ tokens/s, 0.0 GiB$")
        self.assertEqual(found["B=4, PyTorch, flash attention"], ("ok", "2 tokens/s, 3.7 GiB"))
        self.assertRegex(found["B=4, 2 runs beside PyTorch's best of 2"][1], r"^[\d.]+ × its tokens/s, met; 0.\d+ × its memory, met$")
        trained = [row["facts"]["uses_side_streams"] for row in self.rows() if ", dtrun" in row["what"]]
        self.assertEqual(trained, ["1"] * 2 * len(TINY["steps"]))

    @long
    def test_a_gpu_whose_work_no_graph_holds_is_measured_and_the_row_fails(self):
        env = {**self.gpu_stood_in_for(), "DTRUN_TEST_GPU_FAULT": "capture:900"}
        found, _ = self.bench("--tiny", "--quick", "--part", "gpt2", env=env, code=1)
        self.assertEqual(found["B=4, dtrun"][0], "failed")
        self.assertRegex(found["B=4, dtrun"][1], r"tokens/s, 0.0 GiB; measured a fallback: .* cannot be recorded as a graph")
        self.assertEqual(self.rows()[0]["facts"]["uses_graphs"], "none can be recorded")
        self.assertGreater(self.rows()[0]["numbers"]["tokens_per_second"], 0)

    @long
    def test_a_pytorch_that_fails_or_is_missing_is_shown_and_dtruns_numbers_remain(self):
        for how, code, row in (("dies", 1, ("failed", "python3: exit code 1")), ("missing", 0, ("skipped", "python3 has no PyTorch: a test"))):
            found, said = self.bench("--tiny", "--quick", "--part", "gpt2", env=self.gpu_stood_in_for(how), code=code)
            self.assertEqual(found["B=4, PyTorch, cudnn attention"], row)
            self.assertEqual(found["B=4, dtrun, again"][0], "ok")
            self.assertNotIn(" beside ", "".join(found))
            self.assertEqual("  | out of everything" in said, how == "dies")

    @long
    def test_a_pytorch_with_another_model_is_no_comparison(self):
        found, _ = self.bench("--tiny", "--quick", "--part", "gpt2", env=self.gpu_stood_in_for("other"), code=1)
        self.assertEqual(found["B=4, 2 runs beside PyTorch's best of 2"], ("failed", f"{TINY_PARAMETERS:,} parameters here, 1 in PyTorch"))

    @long
    def test_the_second_call_makes_determinism_and_what_is_missing_in_the_first_ones_file(self):
        env = self.gpu_stood_in_for()
        made = [{"part": "gpt2", "what": what, "status": status, "text": "", "numbers": numbers, "facts": {}}
                for what, status, numbers in (
                    ("B=4, dtrun", "ok", {"tokens_per_second": 30, "peak_bytes": 2e9, "parameters": TINY_PARAMETERS}),
                    ("B=4, PyTorch, cudnn attention", "failed", {}), ("B=4, dtrun, again", "skipped", {}))]
        lines = [json.dumps(row) + "\n" for row in made]
        self.json.write_text("".join(lines) + lines[0][:20])
        found, _ = self.bench("--tiny", "--quick", "--call", "2", env=env)
        self.assertEqual(list(found), ["bf16, a run", "bf16, again", "bf16, after kill -9", "bf16, each launch waited for",
                                       "dtrun gpus", "nvidia-smi", "driver", "kernels, vectors, networks", "cuDNN's plans",
                                       "B=4, dtrun, again", "B=4, PyTorch, flash attention", "B=4, 2 runs beside PyTorch's best of 1"])
        for what in ("again", "after kill -9", "each launch waited for"):
            self.assertEqual(found[f"bf16, {what}"], ("ok", "the same"))
        self.assertRegex(found["B=4, 2 runs beside PyTorch's best of 1"][1], "^[0-9.]+ × its tokens/s, met; 0.500 × its memory, met$")
        self.assertTrue(self.json.read_text().startswith("".join(lines)))

    @long
    def test_an_interrupt_or_a_kill_keeps_the_rows_that_were_found(self):
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 130), (signal.SIGKILL, -9)):
            env = self.gpu_stood_in_for("sleeps")
            with self.start("--build", self.build, "--tiny", "--json", self.json, "--part", "gpt2", env=env) as program:
                pids = self.folder / "torch_pids"
                self.assertTrue(eventually(lambda: pids.exists() and pids.read_text().endswith("\n")))
                torch = pids.read_text().strip()
                program.send_signal(number)
                if number == signal.SIGKILL:
                    os.kill(int(torch), signal.SIGKILL)
                table, notes = program.communicate()
            self.assertEqual(program.returncode, code, notes)
            self.assertEqual("interrupted" in table, number != signal.SIGKILL)
            self.assertEqual([row["what"] for row in self.rows()], ["B=4, dtrun"])
            self.assertTrue(eventually(lambda: not pathlib.Path(f"/proc/{torch}").exists()))
            pids.unlink()

    @long
    def test_a_packed_folder_runs_elsewhere_with_an_empty_environment(self):
        packed, moved, env = self.folder / "packed", self.folder / "elsewhere", {"PATH": "/usr/bin:/bin"}
        subprocess.run([SCRIPTS / "bench_gpu", "--build", BUILD, "--pack", packed], check=True, capture_output=True)
        self.assertLess(sum(path.stat().st_size for path in packed.rglob("*") if path.is_file()), 64 << 20)
        packed.rename(moved)
        done = subprocess.run([moved / "scripts/bench_gpu", "--part", "gpus"], cwd="/", env=env, capture_output=True, text=True)
        self.assertRegex(done.stdout, "(?m)^  dtrun gpus +ok ")
        # Its worker finds its libraries, too.
        job = self.folder / "job.json"
        job.write_text(json.dumps({"model": {"type": "mlp", "hidden_sizes": [4]}, "output_dir": str(self.folder / "run"),
                                   "data": {"type": "synthetic", "samples": 64, "shape": [1, 4, 4], "classes": 2},
                                   "train": {"max_steps": 2, "global_batch_size": 8, "micro_batch_size": 4}}))
        trained = subprocess.run([moved / "bin/dtrun", "--standalone", job], cwd="/", env=env, capture_output=True, text=True)
        self.assertEqual(trained.returncode, 0, trained.stderr)
        again = subprocess.run([SCRIPTS / "bench_gpu", "--build", BUILD, "--pack", moved], capture_output=True, text=True)
        self.assertEqual(again.returncode, 1)
        self.assertIn("is not empty", again.stderr)


if __name__ == "__main__":
    cases.run()

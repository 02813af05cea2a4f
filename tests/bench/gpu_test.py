"""scripts/bench_gpu where there is no GPU, where something goes wrong, and packed.

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
import time
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
LIMIT_S = 100
NEED_GPU = ("tests", "cudnn", "kernels", "determinism", "repeats", "attention", "weights", "operations", "gpt2", "parity",
            "times", "algorithms", "ranks", "switches", "models", "sanitizer")
TINY_PARAMETERS = 16 * (128 + 16) + 12 * 16 * 16 + 13 * 16 + 2 * 16  # of the tiny GPT-2: embeddings, a block, the last norm
# What PyTorch's stand-in answers; "sleep" in the environment's DTRUN_FAKE_TORCH makes it say nothing.
TORCH = r"""#!/bin/sh
case "$*" in
*"import torch"*) echo 2.11.0 True; exit ;;
*bench_gpu_torch.py*) ;;
*) exec {python} "$@" ;;
esac
echo $$ >>{folder}/torch_pids
parameters={parameters}
[ "$DTRUN_FAKE_TORCH" != other ] || parameters=1
while read -r model rest; do
  case $DTRUN_FAKE_TORCH in
  sleep) sleep 1000 ;;
  dies) echo out of everything >&2; exit 1 ;;
  refuses) echo '{{"error": "RuntimeError: no engine"}}'; continue ;;
  esac
  case $model in
  attention) echo '{{"flash": {{"forward_milliseconds": 1, "backward_milliseconds": 3}}, "cudnn": {{"skipped": "no"}},
    "own choice": {{"forward_milliseconds": 2, "backward_milliseconds": 4, "kernels": "flash_fwd"}}}}' | tr -d '\n'; echo ;;
  parity) echo '{{"loss": 1, "grad_norm": 1}}' ;;
  *) echo '{{"samples_per_second": 0.125, "peak_bytes": 4000000000, "parameters": '$parameters'}}' ;;
  esac
done
"""


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

    def program_of(self, build, name, program):
        """A shell script as a program of the build."""
        path = build / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{program}\n")
        path.chmod(0o755)

    def part_of(self, *options, env=None):
        """Exit code, {what: (status, text)}, the file of --json and the notes of a run with `build`."""
        file = self.folder / "numbers.json"
        code, table, notes = run(SCRIPTS / "bench_gpu", "--build", self.folder / "build", "--json", file, *options,
                                 **({"env": {**os.environ, **env}} if env else {}))
        return code, {what: row for (_, what), row in rows(table).items()}, json.loads(file.read_text()), notes, table

    def algorithms_of(self, program):
        """The part's rows and numbers where a shell script is the program that measures."""
        self.program_of(self.build_of('echo "GPU  CUDA  name"'), "tests/gpu_algorithms", program)
        code, found, report, notes, _ = self.part_of("--quick", "--sizes", "tiny", "--part", "algorithms")
        return code, found, report["rows"], notes

    def trials_of(self, program, *options):
        self.program_of(self.build_of('echo "GPU  CUDA  name"'), "tests/gpu_trials", program)
        return self.part_of("--sizes", "tiny", "--part", *options)

    def gpu_stood_in_for(self, torch="answers"):
        """A build whose worker and programs have a simulated GPU, and the environment for it; PyTorch has a stand-in too."""
        if not (BUILD / "tests/gpu_worker").exists():
            self.skipTest("built without CUDA's headers")
        build, tools = self.folder / "build", self.folder / "tools"
        for folder in (build / "bin", build / "tests", tools):
            folder.mkdir(parents=True)
        for source, target in (("bin/dtrun", "bin/dtrun"), ("tests/gpu_worker", "bin/dtrun-worker"), ("tests/gpu_worker", "tests/stop_point_worker"),
                               ("tests/trials_on_cpu", "tests/gpu_trials"), ("tests/algorithms_on_cpu", "tests/gpu_algorithms")):
            os.symlink(BUILD / source, build / target) if target.startswith("tests") else shutil.copy(BUILD / source, build / target)
        (self.folder / "gpus.json").write_text(json.dumps({"gpus": [{"name": "NVIDIA H200", "uuid": "GPU-0", "bus": 16}]}))
        (tools / "python3").write_text(TORCH.format(python=sys.executable, folder=self.folder, parameters=TINY_PARAMETERS))
        (tools / "python3").chmod(0o755)
        return {"DTRUN_CUDA_LIBRARY_PATH": str(BUILD / "tests/fake_nvml"), "DTRUN_FAKE_GPUS": str(self.folder / "gpus.json"),
                "PATH": f"{tools}:{os.environ['PATH']}", "DTRUN_FAKE_TORCH": torch}

    def wait_for_the_end_of(self, file):
        """Of the processes whose ids are in it: the system may take a moment to forget one."""
        deadline = time.monotonic() + 10
        while any(pathlib.Path(f"/proc/{pid}").exists() for pid in file.read_text().split()):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)

    def test_the_parts_run_on_a_gpu_that_is_stood_in_for(self):
        env = self.gpu_stood_in_for()
        code, found, report, notes, table = self.part_of(
            "--sizes", "tiny", "--part", "machine", "determinism", "algorithms", "repeats", "attention", "weights", "gpt2", "times", "switches", "models", env=env)
        self.assertEqual(code, 0, table + notes)
        self.assertEqual(found["PyTorch"], ("ok", "2.11.0"))
        for what in ("again", "each launch waited for", "kernel by kernel"):
            self.assertEqual(found[f"bf16, {what}"], ("ok", "the same"))
        self.assertRegex(found["fp32, after kill -9"][1], "^the same, killed after step 8 or later$")
        self.assertRegex(found["rows"][1], "^[0-9]+ rows, ")
        self.assertRegex(found["a tiny GPT-2, B=4 bf16, matmuls"][1], r"^\d+, each 3 times, one hash each$")
        self.assertRegex(found["a tiny GPT-2, B=2 bf16, a microbatch's gradient"][1], "^1, each 3 times, one hash each$")
        self.assertRegex(found["B=4, own kernels"][1], "^forward .* ms, .* TFLOP/s; backward .*; the same bits$")
        self.assertEqual(found["B=4, cuDNN"][0], "skipped")
        self.assertEqual(found["B=4, PyTorch"], ("ok", "flash 1.000 + 3.000 ms; cudnn: none; own choice 2.000 + 4.000 ms; "
                                                       "chose flash_fwd"))
        self.assertRegex(found["a tiny GPT-2, B=4 bf16"][1], "^fastest: ")
        self.assertEqual([row["what"].removeprefix("B=4 bf16, ") for row in report["rows"] if row["part"] == "gpt2"][:5],
                         ["dtrun", "PyTorch compiles cuDNN, flash, cuDNN with graphs", "PyTorch, cuDNN", "PyTorch, flash",
                          "PyTorch, cuDNN with graphs"])
        self.assertEqual(found["B=4 bf16, PyTorch, flash"], ("ok", "2 tokens/s, 3.7 GiB"))
        self.assertRegex(found["B=4 bf16, dtrun, again"][1], r"^[\d,]+ tokens/s, .*\(6N\+6LCT\), .*% \(6N\+12LCT\), 0.0 GiB$")
        self.assertRegex(found["B=4 bf16, ratio to PyTorch's best"][1], "^[0-9.]+ ×, target above 1: met$")
        self.assertRegex(found["B=4 bf16, memory beside PyTorch's least"][1], "^0.0 of 3.7 GiB, target below it: met$")
        self.assertRegex(found["B=4 bf16, first mark"][1], "^[0-9,]+ tokens/s, target 545,000: MISSED$")
        self.assertRegex(found["B=4 bf16, goal"][1], "^[0-9,]+ tokens/s, target 580,000: MISSED$")
        self.assertRegex(found["stall of a checkpoint, GPT-2 124M"][1], "ms, target 5 ms: (met|MISSED)$")
        self.assertRegex(found["side streams, B=2"][1], "DTRUN_TEST_CUDA_SIDE_STREAMS=0 .*=2 .*=4 .* ×; the same bits$")
        self.assertRegex(found["epilogues, B=2"][1], "DTRUN_CUDA_EPILOGUES=0 .*=bias,gelu .*=sums .* ×; [1-4] kinds of bits$")
        facts = next(row["facts"] for row in report["rows"] if row["what"] == "epilogues, B=2")
        self.assertEqual({name for name in facts if name.startswith("bits_")},
                         {f"bits_DTRUN_CUDA_EPILOGUES={words}" for words in ("usual", "0", "bias,gelu", "sums")})
        self.assertEqual(found["convnet fp32, dtrun"][0], "ok")
        self.assertNotIn("convnet bf16, dtrun", found)  # which the config refuses
        for row in report["rows"]:
            for name, number in row["numbers"].items():
                for each in number if isinstance(number, list) else [number]:
                    self.assertIsInstance(each, (int, float), f"{row['what']}: {name}")
            for words in row["facts"].values():
                self.assertIsInstance(words, str)
            # What was computed with is told of each run.
            if row["part"] in ("determinism", "times", "switches") or "dtrun" in row["what"]:
                self.assertEqual(row["facts"]["uses_side_streams"], "1", row)
            # Whatever number the table has is one of the file's, too.
            if row["status"] == "ok" and row["part"] not in ("machine",) and re.search(r"\d+\.\d", row["text"]):
                self.assertTrue(row["numbers"], row)
        self.assertEqual((report["version"], report["left_out"], report["interrupted"]), (1, [], False))
        pids = (self.folder / "torch_pids").read_text().split()
        self.assertGreater(len(pids), 4)
        self.wait_for_the_end_of(self.folder / "torch_pids")

    def test_a_gpu_whose_work_no_graph_holds_is_measured_and_the_row_fails(self):
        env = {**self.gpu_stood_in_for(), "DTRUN_TEST_GPU_FAULT": "capture:900"}
        code, found, report, notes, table = self.part_of("--sizes", "tiny", "--part", "times", env=env)
        self.assertEqual(code, 1, table + notes)
        status, text = found["stall of a checkpoint, GPT-2 124M"]
        self.assertEqual(status, "failed")
        self.assertRegex(text, r"ms, target 5 ms: (met|MISSED); measured a fallback: .* cannot be recorded as a graph")
        row = report["rows"][-1]
        self.assertEqual(row["facts"]["uses_graphs"], "none can be recorded")
        self.assertTrue(row["numbers"]["stall_milliseconds"])

    def test_a_pytorch_that_fails_is_shown_and_dtruns_numbers_remain(self):
        for how, why in (("refuses", "PyTorch: RuntimeError: no engine"), ("dies", "PyTorch did not answer")):
            with self.subTest(how):
                shutil.rmtree(self.folder)
                self.folder.mkdir()
                env = self.gpu_stood_in_for(how)
                code, found, _, notes, table = self.part_of("--sizes", "tiny", "--quick", "--part", "gpt2", env=env)
                self.assertEqual(code, 1, table + notes)
                self.assertEqual(found["B=4 bf16, PyTorch, cuDNN"], ("failed", why))
                self.assertEqual(found["B=4 bf16, dtrun"][0], "ok")
                self.assertNotIn("B=4 bf16, ratio to PyTorch's best", found)
                if how == "dies":
                    self.assertIn("  | out of everything", notes)

    def test_a_pytorch_with_another_model_is_no_comparison(self):
        env = self.gpu_stood_in_for("other")
        code, found, _, notes, table = self.part_of("--sizes", "tiny", "--quick", "--part", "gpt2", env=env)
        self.assertEqual(code, 1, table + notes)
        self.assertEqual(found["B=4 bf16, the same model"], ("failed", f"{TINY_PARAMETERS:,} parameters here, 1 in PyTorch"))

    def test_a_step_that_pytorch_computes_otherwise_is_found(self):
        env = self.gpu_stood_in_for()
        code, found, _, notes, table = self.part_of("--sizes", "tiny", "--part", "parity", env=env)
        self.assertEqual(code, 1, table + notes)
        status, text = found["a step from the same weights"]
        self.assertEqual(status, "failed")
        self.assertRegex(text, r"^loss is 4\.\d+ here, 1 in PyTorch$")

    def test_a_pytorch_that_hangs_costs_the_parts_time_and_what_was_left_out_is_named(self):
        env = self.gpu_stood_in_for("sleep")
        begin = time.monotonic()
        code, found, report, notes, table = self.part_of("--sizes", "tiny", "--limit", "7", "--part", "gpt2", "models", env=env)
        self.assertLess(time.monotonic() - begin, 30)
        self.assertEqual(code, 1, table + notes)
        self.assertEqual(found["B=4 bf16, PyTorch compiles cuDNN, flash, cuDNN with graphs"], ("failed", "PyTorch did not answer"))
        self.assertEqual(list(found)[0], "B=4 bf16, dtrun")
        self.assertEqual(found["B=2 bf16"], ("skipped", "no time was left"))
        self.assertRegex(table, r"left out for time: gpt2 \(B=4, 2\), models; "
                                r"run scripts/bench_gpu --part gpt2 models --batches 4 2\n$")
        self.assertEqual(report["left_out"], ["gpt2 (B=4, 2)", "models"])

    def test_an_interrupt_keeps_what_was_found_and_leaves_no_process(self):
        env = self.gpu_stood_in_for("sleep")
        file = self.folder / "numbers.json"
        with subprocess.Popen([SCRIPTS / "bench_gpu", "--build", self.folder / "build", "--sizes", "tiny", "--json", file, "--part",
                               "gpus", "gpt2"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              env={**os.environ, **env}) as program:
            deadline = time.monotonic() + 30
            while not (self.folder / "torch_pids").exists():
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.02)
            program.send_signal(signal.SIGINT)
            table, notes = program.communicate(timeout=LIMIT_S)
        self.assertEqual(program.returncode, 130, notes)
        self.assertIn("interrupted", table)
        report = json.loads(file.read_text())
        self.assertTrue(report["interrupted"])
        self.assertEqual(report["rows"][0]["part"], "gpus")
        self.wait_for_the_end_of(self.folder / "torch_pids")

    def test_what_is_not_the_same_each_time_fails_and_the_rest_is_told(self):
        code, found, report, notes, table = self.trials_of(
            """echo '{"job":"0.json","kind":"matmul","what":"64 x 64","times":50,"others":0,"hash":"00"}'
               echo '{"job":"0.json","kind":"matmul","what":"32 x 32","times":50,"others":7,"hash":"01"}'
               echo '{"job":"0.json","kind":"attention","what":"B=4","by":"cuDNN","times":50,"others":0,"hash":"02"}'
               echo '{"job":"1.json","kind":"microbatch","what":"its gradient","skipped":"there is no room for it"}'""", "repeats")
        self.assertEqual(code, 1, notes)
        self.assertEqual(found["a tiny GPT-2, B=4 bf16, matmuls"],
                         ("failed", "1 of 2 have other bits at times: 32 x 32, 7 of 50 times"))
        self.assertEqual(found["a tiny GPT-2, B=4 bf16, attention"], ("ok", "1, each 50 times, one hash each, by cuDNN"))
        self.assertEqual(found["a tiny GPT-2, B=2 bf16, a microbatch's gradient"], ("skipped", "there is no room for it"))
        self.assertEqual(found["what was tried"], ("ok", "all"))
        self.assertEqual(report["rows"][1]["facts"], {"B=4, cuDNN": "02"})

    def test_trials_that_crash_keep_what_they_had_told(self):
        line = '{"samples":4,"heads":2,"tokens":16,"head_size":8,"way":"own kernels","forward_microseconds":10,' \
               '"backward_microseconds":20,"forward_flops":1e6,"backward_flops":2e6,"workspace_bytes":8,"times":3,"others":0}'
        code, found, _, notes, _ = self.trials_of(f"echo '{line}'; echo the GPU failed; kill -SEGV $$", "attention", "weights")
        self.assertEqual(code, 1, notes)
        self.assertEqual(found["B=4, own kernels"][0], "ok")
        self.assertEqual(found["what was tried"], ("failed", "gpu_trials: SIGSEGV"))
        self.assertIn("  | the GPU failed", notes)

    def test_the_price_of_determinism_is_told_and_ways_that_are_wrong_fail(self):
        def way(name, backward, others, more=""):
            return (f'{{"job":"0.json","samples":4,"heads":12,"tokens":1024,"head_size":64,"way":"{name}","forward_microseconds":100,'
                    f'"backward_microseconds":{backward},"forward_flops":1e9,"backward_flops":3e9,"workspace_bytes":1048576,'
                    f'"times":20,"others":{others}{more}}}')
        lines = [way("own kernels", 900, 0), way("cuDNN, deterministic", 500, 0), way("cuDNN, atomic sums", 400, 3),
                 '{"job":"0.json","copied_bytes_per_second":4e12}']
        code, found, _, notes, table = self.trials_of("\n".join(f"echo '{line}'" for line in lines), "attention")
        self.assertEqual(code, 0, table + notes)
        self.assertEqual(found["B=4, cuDNN, atomic sums"][1], "forward 0.100 ms, 10 TFLOP/s; backward 0.400 ms, 8 TFLOP/s; 1 MiB; "
                                                              "other bits in 3 of 20 times")
        # 2 bytes for each of 4 * 12 * 1024 * 1024 scores, written and read.
        self.assertEqual(found["B=4, price of the same bits"][1],
                         "+0.100 ms backward; the scores' gradient moves in 0.050 ms, its causal half in 0.025 ms at measured 4.00 TB/s")
        lines[1] = way("cuDNN, deterministic", 500, 2)
        lines[2] = way("cuDNN, atomic sums", 400, 3, ',"fault":"it fails: cuDNN failed"')
        shutil.rmtree(self.folder / "build")
        code, found, _, notes, _ = self.trials_of("\n".join(f"echo '{line}'" for line in lines), "attention")
        self.assertEqual(code, 1, notes)
        self.assertEqual(found["B=4, cuDNN, deterministic"], ("failed", "other bits in 2 of 20 times"))
        self.assertNotIn("B=4, price of the same bits", found)
        self.assertEqual(found["B=4, cuDNN, atomic sums"], ("failed", "it fails: cuDNN failed"))

    def test_operations_are_told_beside_their_floors_where_dtrun_profiles_a_gpu(self):
        row = {"what": "Linear 768 -> 3072 + GELU", "part": "forward", "stream": "lane", "launches": 12, "seconds": 0.004,
               "share": 0.25, "floor_seconds": 0.003, "of_ceiling": 0.75}
        profile = {"device": "cuda", "step_seconds": 0.015, "timed_step_seconds": 0.016, "busy_seconds": 0.0152, "gap_seconds": 0.0008,
                   "floor_seconds": 0.009, "data_seconds": 0.001, "update_seconds": 0.002,
                   "ceiling": {"flops_per_second": 8e14, "bytes_per_second": 4e12},
                   "rows": [{**row, "what": f"Linear {number}"} for number in range(24)]}
        for device, status in (("cuda", "ok"), ("cpu", "skipped")):
            with self.subTest(device):
                shutil.rmtree(self.folder / "build", ignore_errors=True)
                text = json.dumps({**profile, "device": device})
                self.build_of(f"[ \"$1\" = profile ] && echo '{text}' || echo 'GPU  CUDA  NVIDIA H200'")
                code, found, report, notes, _ = self.part_of("--sizes", "tiny", "--quick", "--part", "operations")
                self.assertEqual(code, 0, notes)
                self.assertEqual(len(report["rows"]), 25 if device == "cuda" else 1)
                self.assertEqual(found["a tiny GPT-2, B=4 bf16, a step"][0], status)
        self.assertEqual(found["a tiny GPT-2, B=4 bf16, a step"][1], "dtrun profile does not know GPUs yet")

    def test_kernels_of_products_are_listed_where_ncu_is_and_one_for_unaligned_operands_fails(self):
        self.build_of("echo 'GPU  CUDA  NVIDIA H100'")
        table = self.folder / "table.csv"
        table.write_text('"Kernel Name","Metric Name","Metric Value"\n"nvjet_a","gpu__time_duration.sum","1,500,000"\n'
                         '"void cutlass::Kernel2<cutlass_80_gemm_align1>(T1)","gpu__time_duration.sum","500,000"\n')
        for program, code, wanted in (
                (f'echo of dtrun; cat {table}', 1,
                 {"kernels of matmuls": ("ok", "2 of 2 launches, 2.000 ms, 75% of it in Hopper's (nvjet)"),
                  "nvjet_a": ("ok", "1 launches, 1.500 ms"),
                  "cutlass_80_gemm_align1": ("failed", "1 launches, 0.500 ms: MISSED, it is for operands that lie off 16 bytes")}),
                ("echo '==ERROR== ERR_NVGPUCTRPERM - no permission'; exit 1", 0,
                 {"kernels of matmuls": ("skipped", "ncu may not read this GPU's counters (ERR_NVGPUCTRPERM)")}),
                ("echo nothing", 1,
                 {"kernels of matmuls": ("failed", "no matmul is among 0 kernels")})):
            with self.subTest(program):
                self.program_of(self.folder, "tools/ncu", program)
                done, found, _, notes, _ = self.part_of("--sizes", "tiny", "--part", "kernels",
                                                        env={"PATH": f"{self.folder}/tools:{os.environ['PATH']}"})
                self.assertEqual((done, found), (code, wanted), notes)

    def test_two_runs_are_compared(self):
        def written(name, *rows):
            file = self.folder / name
            file.write_text(json.dumps({"version": 1, "rows": [
                {"part": part, "what": what, "status": status, "text": "", "numbers": numbers, "facts": facts}
                for part, what, status, numbers, facts in rows]}))
            return file
        old = written("old", ("gpt2", "B=64", "ok", {"tokens_per_second": 100, "peak_bytes": 1000}, {"hash": "a"}),
                      ("times", "stall", "ok", {"stall_milliseconds": [1, 2]}, {}))
        new = written("new", ("gpt2", "B=64", "failed", {"tokens_per_second": 110, "peak_bytes": 1001}, {"hash": "b"}))
        code, out, notes = run(SCRIPTS / "bench_gpu", "--compare", old, new)
        self.assertEqual(code, 0, notes)
        self.assertEqual(out.splitlines(), ["gpt2: B=64: ok → failed: ", "gpt2: B=64: hash: a → b",
                                            "gpt2: B=64: tokens_per_second: 100 → 110 (1.100 ×)", "times: stall: only in the old",
                                            "4 differences"])
        self.assertEqual(run(SCRIPTS / "bench_gpu", "--compare", old, old)[1], "no difference\n")

    def test_several_ranks_on_one_gpu_that_is_stood_in_for(self):
        env = self.gpu_stood_in_for()
        code, found, report, notes, table = self.part_of("--sizes", "tiny", "--part", "ranks", env=env)
        self.assertEqual(code, 0, table + notes)
        for what in ("fp32, 2 ranks on one GPU", "fp32, 4 ranks on one GPU", "bf16, 4 ranks on one GPU"):
            self.assertEqual(found[what][0], "ok")
            self.assertRegex(found[what][1], r"^the same, \d+\.\d ms a step$")
        self.assertTrue(all(row["numbers"]["step_milliseconds"] > 0 for row in report["rows"][:-1]))
        status, text = found["2 times SIGKILL in mid-training"]
        self.assertEqual(status, "ok")
        self.assertRegex(text, r"^the same; [12] kills, 0 of the survivors' contexts lost with them; \d+ aborts.*; from a death to the next step \d+ ms$")

    def test_the_table_of_algorithms_is_told_and_compared_with_the_first_choices(self):
        """On the stand-ins for a GPU, and of the last job alone: a convnet."""
        program = BUILD / "tests/algorithms_on_cpu"
        if not program.exists():
            self.skipTest("built without CUDA's headers")
        code, found, numbers, notes = self.algorithms_of(f'for job; do :; done; exec "{program}" "$1" "$2" "$job"')
        self.assertEqual(code, 0, notes)
        self.assertRegex(found["rows"][1], r"^\d+ rows, \d+ of them not of the first choice; 0 matmuls without a good "
                                           r"algorithm, 0 without room, 0 without time$")
        self.assertRegex(found["convnet fp32"][1], r"^[0-9.]+ ms by the first choices, [0-9.]+ ms by the rows, [0-9.]+ of that$")
        self.assertRegex(found["tiles with split 1"][1], r"^change bits of 0 of \d+ matmuls$")
        self.assertEqual(found["an algorithm for each matmul"][0], "ok")
        table = numbers[0]["facts"]["table"].splitlines()
        self.assertEqual(table[0], "[NVIDIA H100 (simulated), compute capability 9.0, 132 SMs, cuBLASLt 13.1.0]")
        self.assertEqual(sum(line[0].isdigit() for line in table), int(found["rows"][1].split()[0]))

    def test_a_product_without_a_good_algorithm_fails_and_keeps_the_table(self):
        program = BUILD / "tests/algorithms_on_cpu"
        if not program.exists():
            self.skipTest("built without CUDA's headers")
        code, found, numbers, notes = self.algorithms_of(
            f'for job; do :; done; "{program}" "$1" "$2" "$job" | sed "s/; 0 matmuls without/; 2 matmuls without/"')
        self.assertEqual(code, 1, notes)
        self.assertEqual(found["an algorithm for each matmul"], ("failed", "2 matmuls without a good algorithm"))
        self.assertEqual(found["rows"][0], "ok")
        self.assertGreater(len(numbers[0]["facts"]["table"].splitlines()), 3)

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

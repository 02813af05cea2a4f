"""What scripts/bench_gpu decides without a GPU and without a build: which parts come when, what a row fails for.

  gpu_rules_test.py [unittest options…]
"""

import json
import pathlib
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts/lib"))
from bench_common import BenchError
from bench_gpu_checks import Bench, told_of_gpu
from bench_gpu_kernels import judged, launches_of, products_of
from bench_gpu_parts import CALLS, LIMIT_S, LIMITS_S, PARTS

IN_NO_CALL = {"gpus", "models", "cpu", "sanitizer"}


class OrderTest(unittest.TestCase):
    def test_gpt2_has_all_its_time_even_if_each_part_before_it_takes_all_of_its_own(self):
        parts = list(PARTS)
        until_its_end = parts[:parts.index("gpt2") + 1]
        self.assertLessEqual(sum(LIMITS_S[part] for part in until_its_end), LIMIT_S)

    def test_each_part_of_a_call_has_all_its_time(self):
        for number, (parts, _) in CALLS.items():
            self.assertLessEqual(sum(LIMITS_S[part] for part in parts), LIMIT_S, f"call {number}")

    def test_each_part_is_in_one_call_or_needs_none(self):
        of_calls = [part for parts, _ in CALLS.values() for part in parts]
        self.assertEqual(sorted(of_calls), sorted(set(PARTS) - IN_NO_CALL))


def line(name, nanoseconds):
    """As Nsight Compute 2025 writes a kernel."""
    return (f'"0","4242","dtrun-worker","127.0.0.1","{name}","1","13","(384, 1, 1)","(132, 1, 1)","0","9.0",'
            f'"Command line profiler metrics","gpu__time_duration.sum","ns","{nanoseconds}"')


NVJET = "nvjet_sm90_tst_128x256_64x4_1x2_h_bz_coopA_NNT"
UNALIGNED = "cutlass_80_tensorop_bf16_s16816gemm_bf16_128x64_32x6_nn_align2"
NCU = "\n".join([
    "==PROF== Connected to process 4242 (dtrun-worker)",
    '"quoted" is no table yet',
    f'==PROF== Profiling "{NVJET}": 0%....50%....100% - 1 pass',
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC",'
    '"Section Name","Metric Name","Metric Unit","Metric Value"',
    line(NVJET, "1,250,400"),
    line("void dtrun::worker::cuda::<unnamed>::layer_norm_kernel<(int)8, __nv_bfloat16>(int, const T2 *)", "9,000"),
    line(NVJET, "749,600"),
    line(f"void cutlass::Kernel2<{UNALIGNED}>(T1::Params)", "7,000,000"),
    line("void cublasLt::splitKreduce_kernel<(int)32, (int)16, float>(cublasLt::cublasSplitKParams<T6>)", "3,000"),
    line("void cublasLt::epilogue::impl::globalKernel<(int)8, (int)32, float>(int, int, long)", "2,000"),
    line("cudnn_generated_fort_native_sdpa_sm90_gemm_flash_bprop", "5,000"),
    "dtrun: end"])


class KernelsTest(unittest.TestCase):
    def test_products_are_found_in_what_ncu_writes(self):
        launches = launches_of(NCU)
        self.assertEqual(len(launches), 7)
        self.assertEqual({name: (len(times), round(sum(times) * 1e9)) for name, times in products_of(launches).items()},
                         {UNALIGNED: (1, 7_000_000), NVJET: (2, 2_000_000), "cublasLt::splitKreduce_kernel": (1, 3_000),
                          "cublasLt::epilogue::impl::globalKernel": (1, 2_000)})
        self.assertEqual(launches_of("no table"), [])

    def test_kernels_for_unaligned_operands_and_epilogues_apart_are_misses(self):
        for name in ("cutlass_75_wmma_gemm_tn_align1", UNALIGNED, "cublasLt::epilogue::impl::globalKernel"):
            with self.assertRaisesRegex(BenchError, "2 launches, 3.000 ms: MISSED"):
                judged(name, [0.001, 0.002])
        for name in (NVJET, "cutlass_80_gemm_nn_align8", "cutlass_80_gemm_nn_align16"):
            self.assertEqual(judged(name, [0.001, 0.002])[0], "2 launches, 3.000 ms")


USES = {"attention": "cuDNN 9.13.0", "graphs": "used", "fused_epilogues": "36 of 36 matmuls"}
NO_CUDNN = "attention is computed by own kernels, not by cuDNN: no libcudnn.so.9"
NO_SUMS = "cuBLASLt adds biases, or what else follows a matmul, to 3 of 6 matmuls only: kernels of our own do the rest"
NO_GRAPH = "microbatches are launched kernel by kernel, since they cannot be recorded as a graph: a test"


def start(**more):
    return {"event": "start", "step": 0, "parameters": 10, "device": "cuda", **more}


def end(**more):
    return {"event": "end", "step": 6, "params_sha256": "ab", **more}


class FallbackTest(unittest.TestCase):
    def row_of(self, *runs, sizes="full"):
        """Of a check that reads the metrics of these runs."""
        with Bench(pathlib.Path("/nonexistent"), False, 60, sizes) as bench:
            def check():
                for lines in runs:
                    output = bench.folder()
                    (output / "run").mkdir()
                    (output / "run/metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
                    self.assertEqual(bench.metrics(output), list(lines))
                return "5 tokens/s", {"tokens_per_second": 5}

            self.values = bench.check("a run", check)
            return bench.rows[-1]

    def test_what_a_run_used_is_told_as_facts(self):
        row = self.row_of([start(device_uses=USES, device_fallbacks=[]), end(device_uses=USES, device_fallbacks=[])])
        self.assertEqual((row["status"], row["text"]), ("ok", "5 tokens/s"))
        self.assertEqual(row["facts"], {"uses_attention": "cuDNN 9.13.0", "uses_graphs": "used",
                                        "uses_fused_epilogues": "36 of 36 matmuls"})

    def test_a_run_that_fell_back_fails_and_keeps_its_numbers(self):
        row = self.row_of([start(device_uses=USES, device_fallbacks=[]),
                           end(device_uses={**USES, "graphs": "not used"}, device_fallbacks=[NO_GRAPH])])
        self.assertEqual((row["status"], row["text"]), ("failed", f"5 tokens/s; measured a fallback: {NO_GRAPH}"))
        self.assertEqual(row["facts"]["uses_graphs"], "not used")
        self.assertEqual(row["facts"]["fallbacks"], NO_GRAPH)
        self.assertEqual((row["numbers"], self.values), ({"tokens_per_second": 5}, {"tokens_per_second": 5}))

    def test_each_run_of_a_check_counts_and_each_fallback_is_told_once(self):
        fallen, well = ([end(device_uses=USES, device_fallbacks=fallbacks)] for fallbacks in ([NO_CUDNN], []))
        self.assertEqual(self.row_of(fallen, fallen, well)["text"], f"5 tokens/s; measured a fallback: {NO_CUDNN}")

    def test_where_a_gpu_is_stood_in_for_libraries_may_do_less(self):
        fallen = [end(device_uses=USES, device_fallbacks=[NO_CUDNN, NO_SUMS])]
        self.assertEqual(self.row_of(fallen, sizes="tiny")["status"], "ok")
        fallen = [end(device_uses=USES, device_fallbacks=[NO_CUDNN, NO_GRAPH])]
        self.assertEqual(self.row_of(fallen, sizes="tiny")["text"], f"5 tokens/s; measured a fallback: {NO_GRAPH}")

    def test_a_dtrun_that_does_not_tell_is_measured_and_a_cpu_has_nothing_to_tell(self):
        row = self.row_of([start(), end()])
        self.assertEqual((row["status"], row["facts"]), ("ok", {"uses": "not told"}))
        self.assertEqual(told_of_gpu([]), ({"uses": "not told"}, []))
        self.assertEqual(told_of_gpu([start(device_uses=USES, device_fallbacks=[NO_CUDNN])])[1], [NO_CUDNN])
        self.assertEqual(self.row_of([start(device="cpu"), end()])["facts"], {})


if __name__ == "__main__":
    unittest.main()

"""What scripts/kernel_registers finds: in words of a compiler that is none, and in this repository's kernels by nvcc."""

import os
import pathlib
import runpy
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts/kernel_registers"
NVCC_FOLDER = sys.argv[1] if len(sys.argv) > 1 else None

# As ptxas -v tells of a kernel.
SAID = """ptxas info    : Compiling entry function '{name}' for 'sm_90'
ptxas info    : Function properties for {name}
    0 bytes stack frame, {spilled} bytes spill stores, {spilled} bytes spill loads
ptxas info    : Used {registers} registers, used 1 barriers, 1024 bytes smem
"""


def run(*files, path):
    done = subprocess.run([SCRIPT, *files], capture_output=True, text=True, env={**os.environ, "PATH": path})
    return done.returncode, done.stdout, done.stderr


class WordsTest(unittest.TestCase):
    def told(self, registers, spilled=0, name="sum_partials_kernel"):
        """What it makes of partials.cu, if nvcc says so."""
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        nvcc = folder / "nvcc"
        nvcc.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{SAID.format(name=name, registers=registers, spilled=spilled)}END\n")
        nvcc.chmod(0o755)
        return run("partials.cu", path=f"{folder}:{os.environ['PATH']}")

    def test_a_kernel_at_its_ceiling_will_do(self):
        code, table, faults = self.told(32)
        self.assertEqual((code, faults), (0, ""))
        self.assertRegex(table, r"sum_partials_kernel +32 +32 +0 +0 +1024")

    def test_one_register_more_is_named(self):
        code, _, faults = self.told(33)
        self.assertEqual((code, faults), (1, "dtrun: sum_partials_kernel takes 33 registers, more than 32\n"))

    def test_so_is_a_kernel_that_spills(self):
        code, _, faults = self.told(32, spilled=8)
        self.assertEqual((code, faults), (1, "dtrun: sum_partials_kernel spills 16 bytes\n"))

    def test_so_is_a_ceiling_of_no_kernel(self):
        code, _, faults = self.told(32, name="another_kernel")
        self.assertEqual((code, faults), (1, "dtrun: partials.cu has no kernel sum_partials_kernel…\n"))


class KernelsTest(unittest.TestCase):
    def test_kernels_leave_room_for_the_warps_that_they_need(self):
        if NVCC_FOLDER is None:
            self.skipTest("built without nvcc")
        # Of the others the build looks whether they spill.
        ceilings = runpy.run_path(str(SCRIPT))["CEILINGS"]
        files = [ROOT / "worker/device/cuda/kernels" / name for name in ceilings]
        code, table, faults = run(*files, path=f"{NVCC_FOLDER}:{os.environ['PATH']}")
        self.assertEqual((code, faults), (0, ""), table)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

"""kernels_test.py: the CPU's loops give the same bits on an Arm (NEON, in qemu-user) as with AVX2 and AVX-512. Builds them and
kernels_main.cc for each, by the options of worker/device/CMakeLists.txt. Exit code 77 without cross compiler or qemu."""

import concurrent.futures
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/support"))
import cases

OPTIONS = ["-std=c++20", "-O3", "-ffp-contract=off", "-fno-math-errno", "-Wno-psabi", f"-I{ROOT}"]
AVX2 = ["-mavx2", "-mfma"]
AVX512 = [*AVX2, "-mavx512f", "-mavx512dq", "-mavx512vl", "-mavx512bw", "-mprefer-vector-width=512"]
FOLDERS = ("grouped", "matmul", "planned")


class Build:
    """The loops of one instruction set, as a program."""

    def __init__(self, folder, name, compiler, options, runner=()):
        self.name, self.compiler, self.options, self.runner = name, compiler, options, runner
        self.program = folder / f"{name}.{compiler}"

    def make(self):
        sources = [ROOT / f"worker/device/cpu/{folder}/kernels_{self.name}.cc" for folder in FOLDERS]
        for source in sources:
            subprocess.run([self.compiler, *OPTIONS, *self.options, "-c", source, "-o", self.object_of(source)], check=True)
        main = ROOT / "tests/processors/kernels_main.cc"
        subprocess.run([self.compiler, *OPTIONS, f"-DDTRUN_SET={self.name}", main, *map(self.object_of, sources), "-static", "-o",
                        self.program], check=True)
        return self

    def object_of(self, source):
        return f"{self.program}.{source.parent.name}.o"

    def hashes(self):
        return subprocess.run([*self.runner, self.program], capture_output=True, text=True, check=True).stdout.splitlines()


class KernelsTest(unittest.TestCase):
    def test_the_loops_agree(self):
        with tempfile.TemporaryDirectory(prefix="dtrun-kernels-") as name, concurrent.futures.ThreadPoolExecutor(2) as pool:
            folder = pathlib.Path(name)
            builds = [Build(folder, "baseline", "aarch64-linux-gnu-g++", [], ["qemu-aarch64"]), Build(folder, "avx2", "g++", AVX2)]
            if " avx512bw " in pathlib.Path("/proc/cpuinfo").read_text().replace("\n", " "):
                builds.append(Build(folder, "avx512", "g++", AVX512))
            arm, *others = [build.hashes() for build in pool.map(Build.make, builds)]
            self.assertGreater(len(arm), 15)
            for build, found in zip(builds[1:], others):
                self.assertEqual(found, arm, build.name)


if __name__ == "__main__":
    if missing := [tool for tool in ("aarch64-linux-gnu-g++", "qemu-aarch64") if not shutil.which(tool)]:
        cases.skip_all(f"no {', '.join(missing)} (scripts/setup --tests)")
    if platform.machine() != "x86_64":
        cases.skip_all("this processor has no AVX2 to compare with")
    cases.run()

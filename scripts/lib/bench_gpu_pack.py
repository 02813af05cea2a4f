"""scripts/bench_gpu --pack: a folder that runs on a machine with a GPU and with nothing that a build needs. It is what
`cmake --install` brings, with libraries and tests, programs and libraries compressed: the folder is smaller by two thirds."""

import pathlib
import shutil
import subprocess
import tarfile
import tempfile

from bench_common import ROOT, BenchError, note

ARCHIVE = ROOT / "programs.tar.gz"  # of a packed folder

PROGRAMS = ("bin/dtrun", "bin/dtrun-worker")
GPU_TESTS = "tests/gpu_device_tests"
CUDNN_TESTS = "tests/worker_device_cuda_cudnn_on_gpu_tests"
TESTS = (GPU_TESTS, CUDNN_TESTS, "tests/stop_point_worker")  # the first two are not built without CUDA
COMPONENTS = ("runtime", "libraries", "tests")


def default_build():
    """Where the programs are: in a checkout's build, or beside scripts/ where both were installed or packed."""
    return ROOT / "build/release" if (ROOT / "CMakeLists.txt").exists() else ROOT


def install(build, folder):
    for component in COMPONENTS:
        done = subprocess.run(["cmake", "--install", build, "--prefix", folder, "--component", component, "--strip"],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            raise BenchError(f"cmake --install {build} fails", done.stdout)


def pack(build, folder):
    if folder.exists() and any(folder.iterdir()):
        raise BenchError(f"{folder} is not empty")
    for name in PROGRAMS:
        if not (build / name).exists():
            raise BenchError(f"{build / name} was not built")
    with tempfile.TemporaryDirectory() as scratch:
        installed = pathlib.Path(scratch)
        install(build, installed)
        missing = [name for name in TESTS if not (installed / name).exists()]
        folder.mkdir(parents=True, exist_ok=True)
        shutil.move(installed / "scripts", folder / "scripts")
        with tarfile.open(folder / ARCHIVE.name, "w:gz", compresslevel=6) as archive:
            for path in sorted(installed.iterdir()):
                archive.add(path, path.name)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    note(f"{folder}: {size / (1 << 20):.0f} MiB; run {folder}/scripts/bench_gpu")
    for name in missing:
        note(f"without {name}, which was not built")


def unpack():
    """In a packed folder that runs for the first time; elsewhere nothing."""
    if default_build() != ROOT or not ARCHIVE.exists() or (ROOT / "bin").exists():
        return
    with tempfile.TemporaryDirectory(dir=ROOT) as scratch, tarfile.open(ARCHIVE) as archive:
        archive.extractall(scratch)
        for path in sorted(pathlib.Path(scratch).iterdir(), reverse=True):  # bin last: only then it counts as done
            if not (ROOT / path.name).exists():
                path.rename(ROOT / path.name)

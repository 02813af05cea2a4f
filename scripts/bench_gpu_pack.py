"""scripts/bench_gpu --pack: a folder that runs on a machine with a GPU and with nothing that a build needs."""

import pathlib
import re
import shutil
import subprocess
import tarfile
import tempfile

from bench_common import ROOT, BenchError, note

ARCHIVE = ROOT / "programs.tar.gz"  # of a packed folder: programs and libraries, smaller by half

PROGRAMS = ("bin/dtrun", "bin/dtrun-worker")
TESTS = ("tests/gpu_device_tests", "tests/worker_device_cuda_cudnn_on_gpu_test", "tests/gpu_algorithms")  # not built without CUDA
# Every distribution has these, and its newer ones serve older programs.
EVERYWHERE = re.compile(r"(ld-linux-x86-64|libc|libm|libdl|libpthread|librt|libresolv|libstdc\+\+|libgcc_s)\.so")


def libraries_of(program):
    """Name and path of each shared library that the loader would take."""
    said = subprocess.run(["ldd", program], capture_output=True, text=True)
    if said.returncode != 0 or "not found" in said.stdout:
        raise BenchError(f"ldd {program} fails", said.stdout + said.stderr)
    return dict(re.findall(r"(\S+) => (/\S+)", said.stdout))


def copy_programs(build, there, folder):
    libraries = {}
    for name in there:
        target = folder / "build/release" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["strip", "-o", target, build / name], check=True)
        libraries.update(libraries_of(build / name))
    (folder / "lib").mkdir()
    for name, path in libraries.items():
        if not EVERYWHERE.match(name):
            shutil.copy2(path, folder / "lib" / name)


def pack(build, folder):
    if folder.exists() and any(folder.iterdir()):
        raise BenchError(f"{folder} is not empty")
    for name in PROGRAMS:
        if not (build / name).exists():
            raise BenchError(f"{build / name} was not built")
    there = [name for name in PROGRAMS + TESTS if (build / name).exists()]
    (folder / "scripts").mkdir(parents=True)
    with tempfile.TemporaryDirectory() as scratch, tarfile.open(folder / ARCHIVE.name, "w:gz", compresslevel=6) as archive:
        copy_programs(build, there, pathlib.Path(scratch))
        for name in ("build", "lib"):
            archive.add(pathlib.Path(scratch) / name, name)
    for script in [ROOT / "scripts/bench_gpu", *(ROOT / "scripts").glob("bench_*.py")]:
        shutil.copy2(script, folder / "scripts")
    shutil.copytree(ROOT / "configs", folder / "configs")
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    note(f"{folder}: {size / (1 << 20):.0f} MiB; run {folder}/scripts/bench_gpu")
    for name in TESTS:
        if name not in there:
            note(f"without {name}, which was not built")


def unpack():
    """In a packed folder that runs for the first time; elsewhere nothing."""
    if ARCHIVE.exists() and not (ROOT / "build").exists():
        with tarfile.open(ARCHIVE) as archive:
            archive.extractall(ROOT)

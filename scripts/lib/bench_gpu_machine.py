"""What is there: the parts `machine`, `gpus` and `cpu` of scripts/bench_gpu."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

from bench_common import ROOT, BenchError
from bench_gpu_checks import Skip
from bench_gpu_jobs import gpu_shown, last_hash, text_config

DEVICE_SCRIPT = ROOT / "scripts/lib/bench_gpu_device.py"


def machine(bench):
    def processor():
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")
        gib = int(pathlib.Path("/proc/meminfo").read_text().split()[1]) / (1 << 20)
        cores = len(os.sched_getaffinity(0))
        return (f"{cores} cores of {model}, {gib:.0f} GiB, Linux {os.uname().release}",
                {"cores": cores, "memory_gib": gib, "processor": model})

    def nvidia_smi():
        need("nvidia-smi")
        fields = "name,driver_version,memory.total,clocks.max.sm,clocks.max.memory,power.limit,compute_mode,mig.mode.current"
        found = bench.command(["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"], 60).strip()
        return found.replace("\n", "; "), {"gpus": found}

    def properties():
        found = json.loads(bench.command([sys.executable, DEVICE_SCRIPT, "driver"], 60))
        if "skipped" in found:
            raise Skip(found["skipped"])
        text = (f"{found['name']}, compute capability {found['compute_capability']}, {found['multiprocessors']} SMs at "
                f"{found['clock_khz'] / 1e6:.2f} GHz, {found['memory_bytes'] / (1 << 30):.0f} GiB, L2 "
                f"{found['l2_bytes'] / (1 << 20):.0f} MiB, driver for CUDA {found['driver_cuda']}")
        return text, found

    def described():
        for path in libraries_called("cudnn"):
            found = json.loads(bench.command([sys.executable, DEVICE_SCRIPT, "cudnn", str(path)], 60))
            if "skipped" in found:
                raise Skip(found["skipped"])
            return f"{len(found['json'])} characters, in --json", {"device_properties": found["json"]}
        raise Skip("no cuDNN")

    def libraries():
        found = {}
        for name in ("cublasLt", "cudnn", "nccl", "nvrtc"):
            for path in libraries_called(name):
                found.setdefault(name, f"{version_of(bench, name, path)} in {path.parent}")
        if not found:
            raise Skip("none found")
        return ", ".join(f"{name} {where}" for name, where in sorted(found.items())), found

    def tools():
        return ", ".join(tool for tool in ("compute-sanitizer", "ncu", "nvcc", "cuda-gdb") if shutil.which(tool)) or "none"

    def pytorch():
        why = why_no_torch(bench)
        if why:
            raise Skip(why)
        return bench.made["torch"], {"torch": bench.made["torch"]}

    for what, make in (("processor", processor), ("nvidia-smi", nvidia_smi), ("its properties", properties),
                       ("CUDA's libraries", libraries), ("cuDNN's description of it", described), ("tools", tools),
                       ("PyTorch", pytorch)):
        bench.check(what, make)


def version_of(bench, library, path):
    """As the library itself says it; else as its name does."""
    numbers = {"cublasLt": "print(library.cublasLtGetVersion())", "cudnn": "print(library.cudnnGetVersion())",
               "nccl": "n = ctypes.c_int(); library.ncclGetVersion(ctypes.byref(n)); print(n.value)",
               "nvrtc": "a, b = ctypes.c_int(), ctypes.c_int(); library.nvrtcVersion(ctypes.byref(a), ctypes.byref(b)); "
                        "print(f'{a.value}.{b.value}')"}
    code = f"import ctypes; library = ctypes.CDLL({str(path)!r}); {numbers[library]}"
    try:
        return dotted(library, bench.command([sys.executable, "-c", code], 30).strip())
    except BenchError:
        return path.resolve().name.split(".so.")[-1]


def dotted(library, version):
    """13.1.0 of 130100, 9.19.0 of 91900, 2.28.9 of 22809: each library writes its numbers in its own way."""
    if not version.isdigit():
        return version
    number = int(version)
    major = 10000 if library in ("cublasLt", "nccl") or number >= 90000 else 1000
    return f"{number // major}.{number % major // 100}.{number % 100}"


def need(tool):
    if shutil.which(tool) is None:
        raise Skip(f"no {tool}")


def libraries_called(name):
    """Best first."""
    for folder in library_folders():
        yield from (path for path in sorted(folder.glob(f"lib{name}.so.*")) if re.search(r"\.so\.\d[\d.]*$", path.name))


def library_folders():
    """Where dtrun-worker looks, but for the loader's own list."""
    for variable in ("DTRUN_CUDA_LIBRARY_PATH", "LD_LIBRARY_PATH"):
        yield from (pathlib.Path(folder) for folder in os.environ.get(variable, "").split(":") if folder)
    yield from map(pathlib.Path, ("/usr/local/cuda/lib64", "/usr/lib/x86_64-linux-gnu"))
    for folder in python_folders():
        yield from sorted(folder.glob("nvidia/*/lib"))


def python_folders():
    """Packages of the Python that `python3` is, which need not be this one."""
    asked = subprocess.run(["python3", "-c", "import sys; print('\\n'.join(sys.path))"], capture_output=True, text=True)
    return [pathlib.Path(line) for line in asked.stdout.splitlines() if line]


def why_no_torch(bench):
    """"" if `python3` has a PyTorch that sees a GPU."""
    if "no_torch" not in bench.made:
        probe = "import torch; print(torch.__version__, torch.cuda.is_available())"
        try:
            version, there = bench.command(["python3", "-c", probe], 120).split()[-2:]
            bench.made["torch"] = version
            bench.made["no_torch"] = "" if there == "True" else f"PyTorch {version} sees no GPU"
        except BenchError:
            bench.made["no_torch"] = "python3 has no PyTorch"
    return bench.made["no_torch"]


def gpus(bench):
    def shown():
        text = gpu_shown(bench)
        if bench.sees_device() and "no GPU for programs" in text:
            raise BenchError("there is a GPU's device file, but dtrun sees no GPU", text)
        return "; ".join(line for line in text.splitlines() if line), {"gpus": text}

    bench.check("dtrun gpus", shown)


def cpu(bench):
    def train():
        found = last_hash(bench.train(text_config(bench, "cpu", False, 24), 120))
        return f"24 steps, params_sha256 {found[:12]}", {"params_sha256": found}

    bench.check("a tiny GPT-2 on the CPU", train)

"""What the tests of packages share: cpack, the wheel, the smallest job, ELF files as readelf tells them."""

import fcntl
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/support"))
from jobs import lines_of

NO_DEB = "dpkg-dev or file is missing: scripts/setup --tests"
DATA = pathlib.Path("/usr/share/datasets/fashion-mnist")
JOB = ("train.max_steps=20", "train.logging_steps=10")
EXIT_NO_INPUT = 66
MIB = 1 << 20

# What a bare Ubuntu 24.04 and a bare Debian have: libc6, libstdc++6 and libgcc-s1.
EVERYWHERE = {"ld-linux-x86-64.so.2", "libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libresolv.so.2",
              "libstdc++.so.6", "libgcc_s.so.1"}
# The newest versions of symbols there: glibc 2.39, and GCC 14's libraries.
UBUNTU_24_04 = {"GLIBC": (2, 39), "GLIBCXX": (3, 4, 33), "CXXABI": (1, 3, 15), "GCC": (14, 0, 0)}


def run(*words, **how):
    """Exit code and both streams of a program; its environment is the caller's unless `env` is given."""
    how = {"stdin": subprocess.DEVNULL, **how}
    done = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **how)
    return done.returncode, done.stdout


def need(*words, **how):
    """Likewise, of a program without which there is no test; its output."""
    code, said = run(*words, **how)
    if code != 0:
        raise AssertionError(f"exit code {code}: {' '.join(map(str, words))}\n{said}")
    return said


def why_no_packages(build):
    """Why the build makes none; empty: it makes them."""
    cache = (build / "CMakeCache.txt").read_text()
    here = re.search(r"^DTRUN_GPUS:\w+=HERE$", cache, re.MULTILINE)
    return "a build with DTRUN_GPUS=HERE makes no package (scripts/test leaves GPUs' kernels out)" if here else ""


def make_packages(build, folder):
    """What cpack makes of a build, by someone whose new files are nobody else's: "archive", "tests", and "deb" where its
    tools are."""
    has_debs = shutil.which("dpkg-shlibdeps") and shutil.which("file")
    for generator in ("TGZ", "DEB") if has_debs else ("TGZ",):
        need("cpack", "--config", build / "CPackConfig.cmake", "-G", generator, "-B", folder, umask=0o077)
    ends = {"tests": "-tests.tar.gz", "archive": "x86_64.tar.gz", "deb": ".deb"}
    return {name: path for name, end in ends.items() for path in folder.glob(f"*{end}")}


def make_wheel(build, folder):
    """The wheel of a build, in the folder. Tests that run at once make it one after another."""
    with open(build / "wheel.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        need("cmake", "--build", build, "--target", "wheel")
        (wheel,) = (build / "wheel").glob("*.whl")
        return pathlib.Path(shutil.copy(wheel, folder))


def params_sha256(output):
    """Of a finished run's last parameters."""
    return lines_of(output / "metrics.jsonl", "end")[-1]["params_sha256"]


def version(text):
    return tuple(map(int, text.split(".")))


class Elf:
    """What an ELF file asks of others."""

    def __init__(self, path):
        said = need("readelf", "--wide", "--dynamic", "--version-info", path)
        self.needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", said))
        self.search = re.findall(r"\((RPATH|RUNPATH)\).*\[(.*)\]", said)
        self.newest = {}  # of the versions of each library's symbols that it needs
        needs = said.partition("Version needs section")[2]
        for library, number in re.findall(r"Name: (GLIBC|GLIBCXX|CXXABI|GCC)_([0-9.]+)\b", needs):
            self.newest[library] = max(version(number), self.newest.get(library, (0,)))


def is_elf(path):
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def elf_files(folder):
    return [path for path in sorted(folder.rglob("*")) if is_elf(path)]

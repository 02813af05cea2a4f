"""Root folders with a distribution's smallest system, made by debootstrap from the mirror that apt has here; programs run in
them by chroot. Whatever is mounted meanwhile is so for the program alone, in a mount namespace of its own. A build keeps the
archive of each: tests that run at once, or one after another, share them."""

import fcntl
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time

from packing import need, run

SUITES = ["bookworm", "trixie"]  # Debian 12 and 13
BOOTSTRAP_LIMIT_S = 240
KEPT_S = 24 * 3600
# apt's ways to the mirror, which are the machine's.
WAYS = re.compile(r"^Acquire::(http|https|Check|Retries)\b.*", re.IGNORECASE | re.MULTILINE)


class NoRoots(Exception):
    """This machine can make none, and why."""


def host_suite():
    with open("/etc/os-release") as file:
        found = re.search(r"^VERSION_CODENAME=(\w+)$", file.read(), re.MULTILINE)
    return found.group(1) if found else ""


def mirror():
    """Where apt finds the packages of the system that runs here, and in which of its parts (main, universe)."""
    if not shutil.which("apt-get"):
        raise NoRoots("this is not Debian or Ubuntu")
    _, said = run("apt-get", "indextargets", "--format", "$(SITE) $(RELEASE) $(COMPONENT)", "Created-By: Packages")
    sources = [line.split() for line in said.splitlines() if line.startswith(("http:", "https:", "file:"))]
    sites = [site for site, release, component in sources if (release, component) == (host_suite(), "main")]
    if not sites:
        raise NoRoots(f"apt has no plain source for {host_suite()} main")
    parts = {component for site, release, component in sources if (site, release) == (sites[0], host_suite())}
    return sites[0], ",".join(sorted(parts))


def suites():
    """The machine's own and the newer ones: an older one's libraries are too old for what is built here."""
    own = host_suite()
    return SUITES[SUITES.index(own):] if own in SUITES else [own]


def alone(*words, **how):
    """A program whose mounts, and whatever it starts, end with it."""
    return run("unshare", "--mount", "--pid", "--fork", "--kill-child", *words, **how)


def make_root(suite, folder):
    """Raises NoRoots, or AssertionError where debootstrap fails for another reason than the machine or the mirror."""
    if os.geteuid() != 0:
        raise NoRoots("needs root")
    debootstrap = shutil.which("debootstrap", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if not debootstrap:
        raise NoRoots("debootstrap is missing: scripts/setup --tests")
    source, parts = mirror()
    code, said = alone("true")
    if code != 0:
        raise NoRoots(f"no namespaces here: {said.strip()}")
    options = ["--variant=minbase", f"--components={parts}"]
    if source.startswith("https:"):
        options.append("--include=ca-certificates")
    try:
        code, said = alone(debootstrap, *options, suite, folder, source, timeout=BOOTSTRAP_LIMIT_S)
    except subprocess.TimeoutExpired:
        raise NoRoots(f"{source} needs more than {BOOTSTRAP_LIMIT_S} s for {suite}") from None
    if code != 0:
        if re.search(r"Failed getting release file|Couldn't download|noexec or nodev", said):
            raise NoRoots(f"debootstrap {suite} from {source}: {said.strip().splitlines()[-1]}")
        raise AssertionError(f"debootstrap {suite}: exit code {code}\n{said[-4000:]}")
    _, settings = run("apt-config", "dump")
    (folder / "etc/apt/apt.conf.d/99machine").write_text("\n".join(line.group() for line in WAYS.finditer(settings)) + "\n")


def new_root(suite, build, folder):
    """A new root in an empty folder; raises as make_root does. The folder of debootstrap itself is a temporary one: it knows no
    spaces."""
    kept = pathlib.Path(build) / "roots"
    kept.mkdir(exist_ok=True)
    archive = kept / f"{suite}.tar"
    with open(kept / f"{suite}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists() or time.time() - archive.stat().st_mtime > KEPT_S:
            with tempfile.TemporaryDirectory(prefix="dtrun-root-") as made:
                make_root(suite, pathlib.Path(made) / "root")
                need("tar", "-cf", archive.with_suffix(".part"), "-C", f"{made}/root", ".")
            archive.with_suffix(".part").rename(archive)
    need("tar", "-xpf", archive, "--numeric-owner", "-C", folder)


# $1: the root; then pairs of a folder here and where it is seen there, "--", and the words.
INSIDE = """
root=$1; shift
while [ "$1" != -- ]; do mkdir -p "$root/$2" && mount --bind "$1" "$root/$2" && shift 2 || exit 1; done; shift
mount -t proc proc "$root/proc" && chroot "$root" "$@"; exit $?"""


def run_inside(root, *words, seen=(), **variables):
    """Exit code and output of a program there, with a user's plain environment and the machine's way to the mirror. `seen`: a
    folder here and where it is meanwhile there. A variable that is None is not set."""
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LC_ALL": "C.UTF-8",
                   "DEBIAN_FRONTEND": "noninteractive"}
    ways = {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}
    return alone("sh", "-c", INSIDE, "sh", root, *seen, "--", *words,
                 env={name: value for name, value in {**environment, **ways, **variables}.items() if value is not None})

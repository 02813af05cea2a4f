"""Root folders with a distribution's smallest system, made by debootstrap from the mirror that apt has here; programs run in
them by chroot. Whatever is mounted meanwhile is so for the program alone, in a mount namespace of its own."""

import os
import re
import shutil
import subprocess

from packing import run

SUITES = ["bookworm", "trixie"]  # Debian 12 and 13
BOOTSTRAP_LIMIT_S = 240
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


def run_inside(root, *words, limit_s=120):
    """Exit code and output of a program there, with a user's plain environment and the machine's way to the mirror."""
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LC_ALL": "C.UTF-8",
                   "DEBIAN_FRONTEND": "noninteractive"}
    ways = {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}
    script = 'mount -t proc proc "$1/proc" && chroot "$@"; exit $?'
    return alone("sh", "-c", script, "sh", root, *words, timeout=limit_s, env={**environment, **ways})

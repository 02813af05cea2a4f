"""Hosts for scripts/chaos on this one machine: network namespaces, each with a name, an address and a disk of its own, on
one switch. A cable can be cut, both ways or one way, without anybody being told. Needs root."""

import contextlib
import os
import pathlib
import shutil
import subprocess
import time

from bench_common import BenchError

TOOLS = ("ip", "nft", "nsenter", "setpriv", "unshare")
READY_S = 30  # until a namespace is made
# Keeps its namespaces alive for as long as this script lives, whatever ends that.
HOLDER = ["setpriv", "--pdeathsig", "KILL", "--", "unshare", "--net", "--uts", "--mount", "--propagation", "private", "--",
          "sh", "-c"]
HOST = 'hostname "$0" && ip link set lo up && eval "$2" && exec sleep infinity'
MEMORY = 'mount -t tmpfs -o size=64m tmpfs "$1"'
IMAGE = 'truncate -s 256M "$3" && mkfs.ext4 -q "$3" && mount -o loop "$3" "$1" && rm "$3"'
SWITCH = 'hostname "$0" && ip link set lo up && ip link add br0 type bridge && ip link set br0 up && exec sleep infinity'


def why_none():
    """Why this machine lets us make no such hosts; empty: it does."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    return f"{', '.join(missing)}: not found" if missing else ""


def run(argv):
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        raise BenchError(f"{' '.join(argv)}: {done.stderr.strip()}")


class Hosts:
    """As long as the `with` block. `disk`: a folder that every host sees with contents of its own. `images`: a folder for
    the images of disks that can be frozen."""

    def __init__(self, count, disk, images=None):
        self.count, self.disk, self.images = count, pathlib.Path(disk), images
        self.holders = []  # of each host, then of the switch

    def __enter__(self):
        with contextlib.ExitStack() as unless_all_made:
            unless_all_made.push(self.__exit__)
            self.disk.mkdir(parents=True, exist_ok=True)
            for host in range(self.count):
                self.hold(HOST, self.name(host), str(self.disk), IMAGE if self.images else MEMORY,
                          f"{self.images}/{self.name(host)}.image")
            self.hold(SWITCH, "switch")
            for host in range(self.count):
                self.plug(host)
            self.at_switch("ip", "address", "add", f"{self.address(self.count)}/24", "dev", "br0")
            unless_all_made.pop_all()
        return self

    def __exit__(self, *exception):
        for holder in self.holders:
            holder.kill()
            holder.wait()
        self.holders = []

    def hold(self, script, *words):
        holder = subprocess.Popen([*HOLDER, script, *words], stdin=subprocess.DEVNULL)
        self.holders.append(holder)
        deadline = time.monotonic() + READY_S
        while pathlib.Path(f"/proc/{holder.pid}/comm").read_text() != "sleep\n":
            if holder.poll() is not None or time.monotonic() > deadline:
                raise BenchError(f"this machine lets us make no host ({script})")
            time.sleep(0.01)

    @staticmethod
    def name(host):
        return f"node{host}"

    @staticmethod
    def address(host):
        """The switch has the one after the last host's."""
        return f"10.78.0.{host + 1}"

    def inside(self, host, argv):
        """The command, to be run on the host (after the last: the switch); its process has nothing in between."""
        return ["nsenter", "--target", str(self.holders[host].pid), "--net", "--uts", "--mount", "--", *map(str, argv)]

    def at_switch(self, *argv):
        run(self.inside(self.count, argv))

    def plug(self, host):
        here, there = self.holders[self.count].pid, self.holders[host].pid
        run(["nsenter", "--target", str(here), "--net", "--", "ip", "link", "add", f"port{host}", "type", "veth", "peer", "name",
             "eth0", "netns", str(there)])
        self.at_switch("ip", "link", "set", f"port{host}", "master", "br0", "up")
        run(self.inside(host, ["ip", "address", "add", f"{self.address(host)}/24", "dev", "eth0"]))
        run(self.inside(host, ["ip", "link", "set", "eth0", "up"]))

    def seen_from_here(self, host, path):
        return pathlib.Path(f"/proc/{self.holders[host].pid}/root{path}")

    @contextlib.contextmanager
    def frozen(self, host):
        """The disk does not answer. However this script ends, it is thawed: nothing else would end who waits for it."""
        thaw = self.inside(host, ["fsfreeze", "-u", self.disk])
        with subprocess.Popen(["setsid", "sh", "-c", 'read -r end; exec "$@"', "sh", *thaw], stdin=subprocess.PIPE):
            run(self.inside(host, ["fsfreeze", "-f", self.disk]))
            yield

    def cut(self, host, way):
        """`way`: "both", or what still passes: "in", "out" of the host."""
        if way == "both":
            return self.at_switch("ip", "link", "set", f"port{host}", "down")
        chain, name = ("output", "oifname") if way == "in" else ("input", "iifname")
        rules = (f"add table inet cut; add chain inet cut it {{ type filter hook {chain} priority 0 ; }} ; "
                 f"add rule inet cut it {name} != lo drop")
        run(self.inside(host, ["nft", rules]))

    def mend(self, host, way):
        if way == "both":
            return self.at_switch("ip", "link", "set", f"port{host}", "up")
        run(self.inside(host, ["nft", "delete", "table", "inet", "cut"]))

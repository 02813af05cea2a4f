"""The part `ssh` of scripts/bench: time from the command to the workers on many hosts, and what is left on them when the
launcher is killed; dtrun --hostfile, Open MPI's mpirun and pdsh. The hosts are network namespaces with an sshd each
(tests/bench/ssh_lab.cc), and one `ssh HOST true` in the same run is the unit."""

import os
import shutil
import signal
import statistics
import subprocess
import time
import uuid

from bench_common import ROOT, BenchError, attempt, failed, row, rows_of, summary
from bench_processes import Job, Program, run, wait_until

LAB = ROOT / "build/release/tests/ssh_lab"

TARGET_LOGINS, TARGET_SECONDS = 2, 1  # from the command to the first worker: twice a login and a second

HOSTS = (1, 8, 64)
HOSTS_BEHIND_JUMP = 200  # by Debian's MaxStartups the jump host refuses logins at random while 10 are unfinished
HOSTS_OF_ORPHANS = 8
ORPHANS_AFTER_S = 5
WORKER_S = 600
LAB_LIMIT_S = 1800  # of all that is measured on some hosts: 64 on two cores need minutes
SSH = ("ssh", "-T", "-o", "BatchMode=yes")


class Lab:
    """That many hosts, and a login host with a file of their names in its user's home. With "jump" there is a jump host
    between them."""

    def __init__(self, count, *network):
        self.names = [f"node{number}" for number in range(count)]
        self.program = Program([LAB, str(count), *network], LAB_LIMIT_S, stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def __enter__(self):
        self.program.__enter__()
        self.login = list(iter(lambda: self.program.process.stdout.readline().rstrip("\n"), ""))
        if not self.login:
            raise BenchError("there are no hosts to launch on", self.program.process.stderr.read())
        run(self.at_login("sh", "-c", 'printf "%s slots=1\\n" "$@" > hosts', "sh", *self.names))
        return self

    def __exit__(self, *exception):
        self.program.process.stdin.close()
        self.program.process.wait()
        return self.program.__exit__(*exception)

    def at_login(self, *argv):
        return [*self.login, *argv]

    def running(self, text):
        """Processes on the hosts with `text` in their command line."""
        self.program.process.stdin.write(text + "\n")
        self.program.process.stdin.flush()
        return int(self.program.process.stdout.readline())


def ssh_to_all(names, worker):
    return ["sh", "-c", f'for host; do {" ".join(SSH)} "$host" {" ".join(worker)} & done; wait', "sh", *names]


# Each runs `worker` once on each host.
LAUNCHERS = {
    "ssh": ssh_to_all,
    "dtrun": lambda names, worker: ["dtrun", "--hostfile", "hosts", "--", *worker],
    "mpirun": lambda names, worker: ["mpirun", "--hostfile", "hosts", "--map-by", "ppr:1:node", "--bind-to", "none", *worker],
    "pdsh": lambda names, worker: ["pdsh", "-R", "ssh", "-f", str(len(names)), "-w", ",".join(names), " ".join(worker)],
}
TITLES = {"ssh": "ssh to each, all at once", "dtrun": "dtrun --hostfile", "mpirun": "mpirun (Open MPI)", "pdsh": "pdsh"}
PEERS = {"mpirun", "pdsh"}


def command(lab, launcher, *worker):
    if launcher in PEERS and not shutil.which(launcher):
        raise BenchError(f"{launcher} is missing (scripts/setup --bench)")
    return lab.at_login(*LAUNCHERS[launcher](lab.names, worker))


def launch(lab, launcher):
    """Seconds until the first and the last worker's line is here."""
    word = uuid.uuid4().hex
    begin = time.perf_counter()
    with Job(command(lab, launcher, "echo", word), {}) as job:
        job.process.wait()
    heard = [at - begin for at, line in job.lines if word in line]
    if len(heard) != len(lab.names):
        raise BenchError(f"{len(heard)} of {len(lab.names)} workers were heard", job.said())
    return heard[0], heard[-1]


def measure_launcher(lab, launcher, repeats):
    launch(lab, launcher)  # the page cache is warm from here on
    runs = [launch(lab, launcher) for _ in range(repeats)]
    return {"first_s": summary([first for first, _ in runs]), "all_s": summary([last for _, last in runs])}


def measure_hosts(count, repeats, results):
    with Lab(count) as lab:
        login = lab.at_login(*SSH, lab.names[0], "true")
        results["login_s"] = statistics.median(run(login)[0] for _ in range(2 * repeats + 1))
        for launcher in LAUNCHERS:
            results[launcher] = attempt(f"ssh: {launcher} on {count} hosts", measure_launcher, lab, launcher, repeats)


def measure_jump():
    with Lab(HOSTS_BEHIND_JUMP, "jump") as lab:
        word = uuid.uuid4().hex
        plain = ["sh", "-c", f'"$@" | grep -c {word} || true', "sh", *command(lab, "ssh", "echo", word)]
        came_up = int(run(plain, LAB_LIMIT_S)[1])
        first_s, last_s = launch(lab, "dtrun")
        return {"first_s": first_s, "all_s": last_s, "plain": came_up}


def measure_orphans(launcher):
    """What still runs some seconds after SIGKILL of the launcher alone."""
    with Lab(HOSTS_OF_ORPHANS) as lab:
        with Program(command(lab, launcher, "sleep", str(WORKER_S)), stdout=subprocess.DEVNULL,
                     stderr=subprocess.DEVNULL) as program:
            wait_until(lambda: lab.running(f"sleep {WORKER_S}") >= HOSTS_OF_ORPHANS, program, "all workers ran")
            os.kill(program.pid, signal.SIGKILL)
            time.sleep(ORPHANS_AFTER_S)
            return {"on_hosts": lab.running(""), "workers": lab.running(f"sleep {WORKER_S}"),
                    "at_launcher": len(list(program.pids()))}


def measure(options, results):
    repeats, counts = (1, HOSTS[:2]) if options.quick else (5, HOSTS)
    results["launch"], results["orphans"] = {}, {}
    for count in counts:
        of_count = results["launch"][str(count)] = {}
        of_count.update(attempt(f"ssh: {count} hosts", measure_hosts, count, repeats, of_count) or {})
    if not options.quick:
        results["jump"] = attempt("ssh: jump host", measure_jump)
    for launcher in ("dtrun", *sorted(PEERS)):
        results["orphans"][launcher] = attempt(f"ssh: orphans of {launcher}", measure_orphans, launcher)


def launch_rows(launcher, numbers, login_s):
    first, limit = numbers["first_s"]["median"], TARGET_LOGINS * login_s + TARGET_SECONDS
    ours = launcher == "dtrun"
    yield row(f"  first worker: {TITLES[launcher]}", f"{first:.2f} s", f"<= {limit:.2f} s" if ours else "",
              first <= limit if ours else None)
    yield row("    in logins; last worker", f"{first / login_s:.1f}; {numbers['all_s']['median']:.2f} s")


def jump_rows(numbers):
    yield row(f"{HOSTS_BEHIND_JUMP} hosts behind a jump host: first worker", f"{numbers['first_s']:.1f} s")
    yield row("  all of them", f"{numbers['all_s']:.1f} s")
    yield row("  ssh to each, all at once: that many came up", f"{numbers['plain']} of {HOSTS_BEHIND_JUMP}")


def orphan_rows(launcher, left):
    on_hosts = left["on_hosts"]
    yield row(f"left {ORPHANS_AFTER_S} s after SIGKILL: {TITLES[launcher]}",
              f"{on_hosts} + {left['at_launcher']}", "0 + 0" if launcher == "dtrun" else "",
              on_hosts + left["at_launcher"] == 0 if launcher == "dtrun" else None)


def rows(results):
    for count, numbers in results["launch"].items():
        what = f"one ssh HOST true, {count} host{'s' if count != '1' else ''} there"
        login_s = numbers.get("login_s")
        yield from rows_of(numbers if failed(numbers) else login_s, what, lambda login: [row(what, f"{login:.2f} s")])
        for launcher in LAUNCHERS if login_s else ():
            yield from rows_of(numbers.get(launcher), f"  {TITLES[launcher]}",
                               lambda result, name=launcher, login=login_s: launch_rows(name, result, login))
    if "jump" in results:
        yield from rows_of(results["jump"], f"{HOSTS_BEHIND_JUMP} hosts behind a jump host", jump_rows)
    for launcher, left in results["orphans"].items():
        yield from rows_of(left, f"left after SIGKILL: {TITLES[launcher]}",
                           lambda result, name=launcher: orphan_rows(name, result))

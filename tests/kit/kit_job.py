"""A job of scripts/train.py under the real dtrun, what its workers wrote of themselves, and what must hold of that."""

import collections
import fcntl
import functools
import os
import pathlib
import pty
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import termios
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts/lib"), str(ROOT / "tests/support")]
import cases
from clock import Patience
from jobs import Lines, exit_code, free_port

TRAIN = pathlib.Path(__file__).resolve().parent / "scripts" / "train.py"
PHASES = ("worker_ended", "stopped", "place_worker")


def torchrun(workers):
    """Arguments of Python. Its own port is that of any other torchrun on this machine."""
    return ["-m", "torch.distributed.run", "--master_port", str(free_port()), "-r", "9:1", "-t", "9:1", "--nproc_per_node", str(workers)]


def python_with_torch():
    return os.environ.get("DTRUN_TEST_PYTHON", "/usr/bin/python3")


def why_no_torch():
    """Empty: there is a PyTorch. It is not imported, which takes a second."""
    probe = subprocess.run([python_with_torch(), "-c", "import importlib.util as i; raise SystemExit(not i.find_spec('torch'))"],
                           capture_output=True)
    return "" if probe.returncode == 0 else f"{python_with_torch()} has no PyTorch (scripts/setup --tests, or DTRUN_TEST_PYTHON)"


def dtrun_to_test():
    """The program that ctest names first. Without PyTorch the test ends here."""
    if why := why_no_torch():
        cases.skip_all(why)
    return sys.argv.pop(1)


@functools.cache
def folder_of_tests():
    """Goes with this process."""
    return tempfile.TemporaryDirectory(prefix="dtrun-kit-", ignore_cleanup_errors=True)


def new_folder():
    return pathlib.Path(tempfile.mkdtemp(dir=folder_of_tests().name))


def own_terminal():
    """In a child: its standard input becomes its session's terminal, whose Ctrl-C is a signal to it."""
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def gpus_of_torch():
    """That its workers could use."""
    probe = subprocess.run([python_with_torch(), "-c", "import torch; print(torch.cuda.device_count())"], capture_output=True, text=True)
    return int(probe.stdout or 0)


class KitJob:
    """`options` are of train.py (KIT_STEPS=…), `arguments` of dtrun. With `terminal` dtrun has one of its own. The `world` workers
    are shared by the agents of `nodes`, as in --nnodes, each of them on one of chaos_hosts' `hosts` if there are any; `later`
    of them are started by start_node."""

    def __init__(self, dtrun, world=3, arguments=("--recovery", "memory"), program=None, restarts=100, terminal=False, nodes="1",
                 later=0, hosts=None, **options):
        self.scratch = new_folder()
        self.out = self.scratch / "out.jsonl"
        once = self.scratch / "once"
        once.mkdir()
        self.world = world
        self.environment = {"OMP_NUM_THREADS": "1", **os.environ, "PYTHON_EXEC": python_with_torch(), "KIT_OUT": str(self.out),
                            "KIT_ONCE": str(once), "PYTHONDONTWRITEBYTECODE": "1"}
        self.environment.update({f"KIT_{name.upper()}": str(value) for name, value in options.items()})
        meet = f"{hosts.address(0) if hosts else '127.0.0.1'}:{free_port()}"
        several = ["--nnodes", nodes, "--rdzv_endpoint", meet] if nodes != "1" else []
        count = int(nodes.split(":")[-1])
        self.argv = [dtrun, "--nproc_per_node", str(world // count), "--max_restarts", str(restarts), "--progress", "none",
                     *several, *arguments]
        self.program = program or [str(TRAIN)]
        self.hosts, self.agents = hosts, []
        self.said, self.logs = Lines(self.out), {}
        for _ in range(count - later):
            self.start_node(terminal)
        self.process = self.agents[0]  # its node has the coordinator

    def start_node(self, terminal=False):
        """The job's command once more: the job is what its first node makes of it."""
        node = len(self.agents)
        command = [*self.argv, "--log_dir", str(self.scratch / f"logs{node}"), *self.program]
        with open(self.scratch / "stdout", "a") as out, open(self.scratch / "stderr", "a") as err:
            self.agents.append(subprocess.Popen(self.hosts.inside(node, command) if self.hosts else command, env=self.environment,
                                                stdout=out, stderr=err, **self.input_of(terminal)))
        return self.agents[-1]

    def input_of(self, terminal):
        if not terminal:
            return {}
        self.keyboard, screen = pty.openpty()
        return {"stdin": screen, "preexec_fn": own_terminal}

    def press_ctrl_c(self):
        os.write(self.keyboard, b"\x03")

    def end(self, seconds=240):
        """Its exit code; it is told to end after so long."""
        codes = [exit_code(agent, seconds) for agent in self.agents]
        if None in codes:
            self.tell_to_end()
            return None
        return max(codes, key=abs)

    def tell_to_end(self):
        for agent in self.agents:
            agent.send_signal(signal.SIGTERM)
        return [exit_code(agent) for agent in self.agents]

    def kill(self):
        """Whatever is left of it: its workers go with their agents."""
        for agent in self.agents:
            agent.kill()
            agent.wait()

    def errors(self):
        return (self.scratch / "stderr").read_text(errors="replace") + (self.scratch / "stdout").read_text(errors="replace")

    def lines(self, event):
        return self.said.of(event)

    def events(self, name):
        for path in self.scratch.glob("logs*/*/events.jsonl"):
            self.logs.setdefault(path, Lines(path))
        return [line for log in self.logs.values() for line in log.of(name)]

    def wait_for(self, condition, seconds=120):
        """The first thing that the condition gives which counts; nothing if the job ends, or the time is over."""
        patience = Patience(seconds)
        while not (found := condition()) and self.process.poll() is None and not patience.is_over():
            time.sleep(0.01)
        return found or None

    def whole(self, after=-1):
        """The pids by rank of a generation after that one with all its workers, some steps into it; waits for it."""
        def found():
            steps = self.lines("step")
            if not steps or steps[-1]["world"] != self.world or steps[-1]["gen"] <= after:
                return None
            here = [line for line in steps if line["gen"] == steps[-1]["gen"]]
            pids = {line["rank"]: line["pid"] for line in here}
            return (steps[-1]["gen"], pids) if len(pids) == self.world and len(here) > 4 * self.world else None
        return self.wait_for(found)

    def kill_often(self, faults, number=signal.SIGKILL):
        """Kills a worker each time that the world is whole again: [(time, generation)]."""
        kills, generation = [], -1
        for _ in range(faults):
            found = self.whole(generation)
            if found is None:
                break
            generation, pids = found
            time.sleep(random.random() * 0.2)
            kills.append((time.time(), generation))
            os.kill(pids[random.choice(sorted(pids))], number)
        return kills

    def recoveries(self, kills):
        """Milliseconds from each kill to the first step of a later generation."""
        steps = self.lines("step")
        after = [[line["t"] for line in steps if line["gen"] > generation] for _, generation in kills]
        return [(min(times) - at) * 1e3 for (at, _), times in zip(kills, after) if times]


    def phases(self, kills):
        """Of each kill, in milliseconds from it: the agent knows of the end; the survivors have left; they
        have their places; and the first step of the next generation is done."""
        events, steps = [self.events(name) for name in PHASES], self.lines("step")
        for at, generation in kills:
            times = [next((line["time"] for line in lines if line["time"] > at), at) for lines in events]
            times.append(min((line["t"] for line in steps if line["gen"] > generation), default=at))
            yield [(time - at) * 1e3 for time in times]


def check_steps(test, job, total):
    """Every step was done, all ranks had the same parameters after each (with units, all with the same place in theirs), and
    nobody did one twice; all ended alike."""
    seen, hashes, done = set(), collections.defaultdict(set), collections.Counter()
    for line in job.lines("step"):
        seen.add(line["step"])
        hashes[line["step"], line["place"]].add(line["hash"])
        done[line["pid"], line["step"]] += 1
    test.assertEqual(seen, set(range(total)), job.errors())
    test.assertEqual({step: found for step, found in hashes.items() if len(found) > 1}, {})
    test.assertEqual([which for which, times in done.items() if times > 1], [])
    ends = job.lines("end")
    test.assertEqual({line["done"] for line in ends}, {total}, job.errors())
    places = {line["place"] for line in ends}
    test.assertEqual(len({(line["place"], line["params"], line["moments"], line["lr"]) for line in ends}), len(places))


def measure():
    """kit_job.py DTRUN FAULTS [dtrun's options]: kills workers, prints what that costs, and checks that every step was done once,
    with one hash on all ranks. Options of train.py are in the environment, as KIT_PAUSE=0.02."""
    dtrun, faults, *arguments = sys.argv[1:]
    options = {"steps": 100000, "pause": 0.02, **{name[4:].lower(): value for name, value in os.environ.items() if name.startswith("KIT_")}}
    job = KitJob(dtrun, arguments=("--recovery", "memory", *arguments), restarts=1000, **options)
    kills = job.kill_often(int(faults))
    job.whole(kills[-1][1] if kills else -1)
    job.process.send_signal(signal.SIGTERM)
    print("exit code", job.end(), "faults", len(kills), "load", os.getloadavg()[0])
    took = sorted(job.recoveries(kills))
    print("SIGKILL to the survivors' next step, ms:", [round(one) for one in took], "median", round(statistics.median(took), 1))
    medians = [round(statistics.median(times), 1) for times in zip(*job.phases(kills))]
    print("of that, median ms to:", dict(zip((*PHASES, "step"), medians)))
    print("the agent's own, ms:", [line["milliseconds"] for line in job.events("recovered")])
    check_steps(unittest.TestCase(), job, job.lines("end")[0]["done"])
    print(f"{job.lines('end')[0]['done']} steps, each with one hash on all ranks")


if __name__ == "__main__":
    measure()

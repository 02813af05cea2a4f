"""One run of a training job on this host, quiet or under fire: what scripts/chaos and the part `recovery` of scripts/bench
have in common. The job is real: a launcher's agents, their workers, and a store where agents meet."""

import contextlib
import fcntl
import json
import os
import shlex
import signal
import subprocess
import time
import uuid
from typing import NamedTuple

import chaos_faults
import chaos_hosts
import chaos_plan
from bench_common import BenchError
from bench_peer import free_port, listens
from bench_processes import Program, children_of, processes_with

MARK = "DTRUN_CHAOS_RUN"  # in the environment of everything that belongs to a run
NODE = "DTRUN_CHAOS_NODE"  # in that of an agent that a launcher started
LOOK_EVERY_S = 0.004  # at metrics.jsonl; that is how fresh the knowledge is, times are the trainer's own
STANDSTILL_S = 120  # without a completed step, or from the first agent's end to the last one's
LEFTOVER_LIMIT_S = 20  # from the job's end to that of its last process
DEATH_LIMIT_S = 5  # from SIGKILL to a process's end
RUN_LIMIT_S = 24 * 3600
RUN_ID = "chaos"
PROBE_STEPS, PROBE_WARMUP = 120, 20  # to learn the pace of this machine
HOSTS_PORT = 29400  # of the coordinator, where a network is the run's own
LAST_STEPS = 10  # of a job: no fault is aimed at them


class Outcome(NamedTuple):
    steps: list  # all that were completed, also those that were done again later
    struck: list
    params_sha256: str  # "" if the run did not get to its end
    steps_in_file: list  # numbers of the steps that metrics.jsonl has at the end
    waits: list  # of chaos_plan.Wait
    leftovers: list  # "PID (NAME)" of each process of the run that outlived it
    problems: list  # sentences; leftovers are none of them


class Metrics:
    """Follows a metrics.jsonl whose end a resumed run takes back, and keeps what stood there."""

    def __init__(self, path):
        self.path = path
        self.file = None
        self.lines = []  # (offset, bytes) of what the file holds
        self.seen = set()  # lines that were taken back; one that is written again, unchanged, is no news
        self.looked_at = None
        self.steps = []
        self.params_sha256 = ""

    def look(self):
        if self.file is None:
            with contextlib.suppress(FileNotFoundError):
                self.file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            if self.file is None:
                return
        status = os.fstat(self.file)
        if (status.st_size, status.st_mtime_ns) == self.looked_at:
            return
        self.looked_at = (status.st_size, status.st_mtime_ns)
        while self.lines and not self.still_holds(*self.lines[-1]):
            self.seen.add(self.lines.pop()[1])
        begin = self.end_of_lines()
        for line in self.read(status.st_size - begin, begin).splitlines(keepends=True):
            if line.endswith(b"\n"):
                self.lines.append((self.end_of_lines(), line))
                if line not in self.seen:
                    self.take(json.loads(line))

    def read(self, size, offset):
        return os.pread(self.file, max(0, size), offset)

    def still_holds(self, offset, line):
        return self.read(len(line), offset) == line

    def end_of_lines(self):
        return self.lines[-1][0] + len(self.lines[-1][1]) if self.lines else 0

    def take(self, line):
        if line["event"] == "train":
            self.steps.append(chaos_plan.Step(*(line[name] for name in chaos_plan.Step._fields)))
        elif line["event"] == "end":
            self.params_sha256 = line["params_sha256"]

    def steps_in_file(self):
        events = [json.loads(line) for _, line in self.lines]
        return [event["step"] for event in events if event["event"] == "train"]

    def close(self):
        if self.file is not None:
            os.close(self.file)


class MetricsOfDisks:
    """Of nodes that each have a disk: rank 0 writes on its own, and may be another one from generation to generation."""

    def __init__(self, paths):
        self.each = [Metrics(path) for path in paths]
        self.steps = []  # in the order in which they were seen

    def look(self):
        for metrics in self.each:
            known = len(metrics.steps)
            metrics.look()
            self.steps += metrics.steps[known:]

    @property
    def params_sha256(self):
        return next((metrics.params_sha256 for metrics in self.each if metrics.params_sha256), "")

    def steps_in_file(self):
        """A step that the other nodes did not hear of is done again there."""
        return sorted(set().union(*(metrics.steps_in_file() for metrics in self.each)))

    def close(self):
        for metrics in self.each:
            metrics.close()


def words_in(folder):
    """All that agents, workers and store said there."""
    return "\n".join(log.read_text(errors="replace") for log in sorted(folder.glob("*.log")))


@contextlib.contextmanager
def uninterrupted():
    """A second Ctrl-C must not keep the first one from ending everything."""
    handlers = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


class Training:
    """A job that runs as long as the `with` block. `agent_argv`: the command line of each node's agent. `store_argv`: of the
    store where `nodes` agents meet, or None. `folder`: gets what they say; `metrics`: the file that tells of steps. `hosts`:
    not entered yet, where nodes are hosts of their own. `consoles`: what agents say comes through a pipe (unread()). `remote_shell`: `agent_argv` is of one launcher that starts the
    agents of all hosts by this file, which is written here."""

    def __init__(self, folder, metrics, max_steps, nodes, nproc_per_node, agent_argv, store_argv=None, store_port=None,
                 environment=None, hosts=None, remote_shell=None, consoles=False):
        self.max_steps = max_steps
        self.folder, self.nodes, self.nproc_per_node = folder, nodes, nproc_per_node
        self.agent_argv, self.store_argv, self.store_port = agent_argv, store_argv, store_port
        self.mark = uuid.uuid4().hex
        self.environment = {**(environment or {}), MARK: self.mark}
        self.hosts, self.metrics_path, self.remote_shell = hosts, metrics, remote_shell
        self.readers = {} if consoles else None  # of agents' and the launcher's words, by name
        self.metrics = Metrics(metrics)
        self.agents = {}  # by node; none where a launcher starts them
        self.launcher = self.store = None
        self.struck = []
        self.left = []
        self.problems = []
        self.programs = contextlib.ExitStack()

    def __enter__(self):
        with contextlib.ExitStack() as unless_all_started:
            unless_all_started.push(self.__exit__)
            self.folder.mkdir(parents=True, exist_ok=True)
            if self.hosts:
                self.hosts.__enter__()
                self.metrics = MetricsOfDisks([self.hosts.seen_from_here(node, self.metrics_path)
                                               for node in range(self.nodes)])
            if self.store_argv:
                self.start_store()
            self.start_agents()
            unless_all_started.pop_all()
        return self

    def __exit__(self, *exception):
        with uninterrupted():
            for program in self.mains().values():
                if not program.ended():
                    program.process.terminate()  # all at once: none has to regroup for another
            try:
                return self.programs.__exit__(*exception)
            finally:
                for pid in self.processes():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                self.wait_for(lambda: not self.processes(), DEATH_LIMIT_S)
                self.metrics.close()
                if self.hosts:
                    self.hosts.__exit__(None, None, None)

    def start(self, name, argv):
        with open(self.folder / f"{name}.log", "ab") as log:
            out = log if self.readers is None or name == "store" else self.reader_of(name, log).stdin
            return self.programs.enter_context(Program(argv, RUN_LIMIT_S, self.environment, stdout=out,
                                                       stderr=subprocess.STDOUT))

    def reader_of(self, name, log):
        """Of a pipe as small as there are."""
        reader = self.readers[name] = self.programs.enter_context(subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=log))
        fcntl.fcntl(reader.stdin, fcntl.F_SETPIPE_SZ, 4096)
        return reader

    @contextlib.contextmanager
    def unread(self, node):
        """Nobody reads what the node's agent says, or the launcher, into a pipe that is full."""
        reader = self.readers["launcher" if self.launcher else f"agent-{node}"]
        reader.send_signal(signal.SIGSTOP)
        try:
            # An open file of its own: the agent's must not become one that does not block.
            end = os.open(f"/proc/self/fd/{reader.stdin.fileno()}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            with contextlib.suppress(BlockingIOError):
                while True:
                    os.write(end, b"\n" * 512)
            os.close(end)
            yield
        finally:
            reader.send_signal(signal.SIGCONT)

    def words(self):
        return words_in(self.folder)

    def start_agents(self):
        if self.remote_shell:
            return self.start_launcher()
        for node in range(self.nodes):
            self.start_agent(node)

    def start_agent(self, node):
        argv = self.hosts.inside(node, self.agent_argv) if self.hosts else self.agent_argv
        self.agents[node] = self.start(f"agent-{node}", argv)

    def start_launcher(self):
        """The remote shell has nothing in between either: each agent is a child of the launcher."""
        cases = "\n".join(f'{self.hosts.name(node)}) shift; exec env {NODE}={node} {shlex.join(self.hosts.inside(node, []))} "$@" ;;'
                          for node in range(self.nodes))
        self.remote_shell.write_text(f"#!/bin/sh\ncase $1 in\n{cases}\nesac\n")
        self.remote_shell.chmod(0o700)
        self.launcher = self.start("launcher", self.agent_argv)

    def mains(self):
        """The programs that end with the job, by the names of their logs."""
        if self.launcher:
            return {"launcher": self.launcher}
        return {f"agent-{node}": agent for node, agent in sorted(self.agents.items())}

    def agent_pid(self, node):
        """None: it does not run."""
        if not self.launcher:
            return self.agents[node].pid
        with contextlib.suppress(OSError):
            return next((pid for pid, _ in children_of(self.launcher.pid) if environment_of(pid).get(NODE) == str(node)), None)

    def coordinator_pid(self):
        if self.store:
            return self.store.pid
        return self.agent_pid(chaos_plan.leader_of(events_so_far(self.folder)))

    def start_store(self):
        said = len(words_in(self.folder))

        def is_up():
            return "listening on" in words_in(self.folder)[said:] if self.hosts else listens(self.store_port)
        self.store = self.start("store", self.hosts.inside(self.nodes, self.store_argv) if self.hosts else self.store_argv)
        if not self.wait_for(lambda: is_up() or self.store.ended(), STANDSTILL_S) or self.store.ended():
            raise BenchError(f"the store did not come up on port {self.store_port}; its words are in "
                             f"{self.folder / 'store.log'}", words_in(self.folder))

    def workers(self, node):
        """Pid of each worker by its local rank; that is in its environment, and in that of nothing else's child."""
        found = {}
        agent = self.agent_pid(node)
        with contextlib.suppress(OSError):  # the agent may just have gone
            for pid, _ in children_of(agent) if agent else ():
                rank = environment_of(pid).get("LOCAL_RANK")
                if rank is not None:
                    found[int(rank)] = pid
        return found

    def ended(self):
        return any(program.ended() for program in self.mains().values())

    def wait_for(self, happened, limit_s):
        """Whether it happened within the limit. Looks for completed steps meanwhile."""
        deadline = time.monotonic() + limit_s
        while True:
            self.metrics.look()
            if happened():
                return True
            if time.monotonic() > deadline:
                return False
            time.sleep(LOOK_EVERY_S)

    def pause(self, seconds):
        self.wait_for(lambda: False, seconds)

    def train_until(self, happened):
        """Whether it happened before the job's end. Raises BenchError if no step is completed for a long time."""
        while True:
            steps = len(self.metrics.steps)
            self.wait_for(lambda: happened() or self.ended() or len(self.metrics.steps) > steps, STANDSTILL_S)
            if happened():
                return True
            if self.ended():
                return False
            if len(self.metrics.steps) == steps:
                raise BenchError(f"no step was completed for {STANDSTILL_S} s; what agents and workers said is in "
                                 f"{self.folder}", words_in(self.folder))

    def is_whole(self):
        """Whether all workers of all nodes took part in the newest step."""
        steps = self.metrics.steps
        return bool(steps) and steps[-1].world_size == self.nodes * self.nproc_per_node

    def is_about_to_end(self):
        steps = self.metrics.steps
        return self.ended() or bool(steps) and steps[-1].step > self.max_steps - LAST_STEPS

    def processes(self):
        return list(processes_with(f"{MARK}={self.mark}"))

    def runs(self, pid):
        return environment_of(pid).get(MARK) == self.mark

    def finish(self):
        """Waits for the ends of agents or launcher, ends the store, and notes what is wrong."""
        self.train_until(self.ended)
        mains = self.mains()
        self.wait_for(lambda: all(program.ended() for program in mains.values()), STANDSTILL_S)
        for name, program in mains.items():
            if program.process.poll() != 0:
                ending = program.ending() if program.ended() else f"no end within {STANDSTILL_S} s of another one's"
                who = f"the {name.replace('-', ' of node ')}"
                self.problems.append(f"{who}: {ending}; its words are in {self.folder / f'{name}.log'}")
        if self.store:
            self.store.process.terminate()
        self.wait_for(lambda: not self.processes(), LEFTOVER_LIMIT_S)
        self.left = [f"{pid} ({name_of(pid)})" for pid in self.processes()]


def environment_of(pid):
    """Empty for a process that has gone; a zombie has none any more."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as environ:
        return dict(entry.partition("=")[::2] for entry in environ.read().decode(errors="replace").split("\0"))
    return {}


def name_of(pid):
    with contextlib.suppress(OSError), open(f"/proc/{pid}/comm") as comm:
        return comm.read().strip()
    return "gone"


def recovery_step(training, struck):
    """See chaos_plan.recovery_step."""
    steps = training.metrics.steps[max(0, struck.first - 1):]
    return chaos_plan.recovery_step(struck.fault.kind, struck.time, steps)


def all_run(training):
    """Whether each place has a worker, be it at work or still meeting the others."""
    return all(len(training.workers(node)) == training.nproc_per_node for node in range(training.nodes))


def play(training, schedule, rapid=False, tell=lambda training, struck: None):
    """Strikes as the schedule says while the job trains, and sees it to its end. Without `rapid` a fault waits until
    training goes on with all workers after the one before it, and for half its gap more: a job that never gets
    anywhere is backed off, and back-off is not what this measures. `tell` is called when training goes on. With
    `rapid` a fault waits for nothing but workers: one that is due while none run comes its gap after they do."""
    steps = training.metrics.steps
    training.train_until(lambda: steps)
    since = went_on = time.time()
    for fault in schedule:
        due = max(since + fault.gap, went_on + fault.gap / 2)
        training.train_until(lambda: time.time() >= due)
        if rapid and not all_run(training) and training.train_until(lambda: all_run(training)):
            training.pause(fault.gap)
        blow = chaos_faults.strike(training, fault)
        if blow is None:
            break
        training.struck.append(blow)
        since = blow.time
        if not rapid:
            whole = training.train_until(lambda: recovery_step(training, blow) and training.is_whole())
            if not whole and not training.is_whole() and fault.kind in chaos_plan.OUT_OF_TOUCH:
                training.problems.append(f"the job ended without node {fault.node}, which was out of touch in fault {fault.number}: "
                                         "it was not taken in again, or there was no time for that (--steps)")
            tell(training, blow)
            went_on = time.time()
    training.finish()
    if rapid:
        for blow in training.struck:
            tell(training, blow)


def events_so_far(folder):
    """What dtrun's agents wrote into their --log_dir, which is `folder`/logs."""
    events = []
    for file in folder.glob(f"logs/{RUN_ID}/events.jsonl"):
        events += map(json.loads, file.read_text().splitlines())
    return events


def waits_so_far(folder):
    return chaos_plan.waits_of(events_so_far(folder))


def outcome_of(training, schedule=(), rapid=False, tell=lambda training, struck: None):
    with training:
        play(training, schedule, rapid, tell)
    metrics = training.metrics
    return Outcome(metrics.steps, training.struck, metrics.params_sha256, metrics.steps_in_file(),
                   waits_so_far(training.folder), training.left, training.problems)


def quiet_run(training):
    """A run without faults, which has to go well."""
    outcome = outcome_of(training)
    problems = outcome.problems + outcome.leftovers
    if problems or not outcome.params_sha256:
        raise BenchError("even without faults the job does not run: " + "; ".join(problems or ["its metrics have no end"]),
                         words_in(training.folder))
    return outcome


def steps_for(start, seconds, folder):
    """How many steps of the job take about that long here. `start(max_steps, folder)`: a Training."""
    probe = quiet_run(start(PROBE_STEPS, folder))
    return chaos_plan.steps_for(seconds, probe.steps[PROBE_WARMUP:])


class Job(NamedTuple):
    """What dtrun is to train, and how."""
    dtrun: str
    config: dict
    nodes: int
    nproc_per_node: int
    save_steps: int
    max_restarts: int
    heartbeat_timeout: float = None  # seconds; None: hangs are not looked for
    in_memory_checkpoint_steps: int = 0
    min_nodes: int = 1  # to train on; fewer wait
    keep_alive: int = 15  # seconds of silence until a node is given up
    network: bool = False  # nodes are hosts of their own (chaos_hosts), else agents on loopback
    store: bool = True  # of several nodes; False: each of them may be the coordinator, which takes a network
    disks: bool = False  # hosts have disks that can be frozen
    consoles: bool = False  # Training.consoles
    launcher: bool = False  # one `dtrun -H` starts the agents of all nodes, which takes a network and no store


def training_of(job, max_steps, folder):
    """A run of the job that leaves all that it writes in `folder`."""
    folder.mkdir(parents=True)
    config = {**job.config, "output_dir": str(folder / "out")}
    config["train"] = {**config.get("train", {}), "max_steps": max_steps, "save_steps": job.save_steps,
                       "logging_steps": 1, "eval_steps": 0, "resume_from_checkpoint": "auto"}
    if job.in_memory_checkpoint_steps > 0:
        config["recovery"] = {**config.get("recovery", {}), "in_memory_checkpoint_steps": job.in_memory_checkpoint_steps}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    lanes = max(1, len(os.sched_getaffinity(0)) // (job.nodes * job.nproc_per_node))
    argv = [job.dtrun, "--nproc_per_node", job.nproc_per_node, "--lanes", lanes, "--max_restarts", job.max_restarts,
            "--rdzv_id", RUN_ID, "--log_dir", folder / "logs", "--progress", "none"]
    if job.heartbeat_timeout is not None:
        argv += ["--heartbeat_timeout", job.heartbeat_timeout]
    port = store_argv = environment = remote_shell = None
    hosts = chaos_hosts.Hosts(job.nodes, folder / "out", folder if job.disks else None) if job.network else None
    if job.nodes == 1:
        argv += ["--standalone"]
    else:
        port = HOSTS_PORT if hosts else free_port()
        # A node that is out of touch for long must come back, and not give up first. Of a range it does so by itself.
        patience = "read_timeout=600," if job.min_nodes == job.nodes else ""
        argv += ["--nnodes", f"{job.min_nodes}:{job.nodes}", "--rdzv_conf",
                 f"{patience}keep_alive_interval=1,keep_alive_max_attempt={job.keep_alive}"]
        leaders = range(job.nodes)[:3] if not job.store else [job.nodes]  # the switch's address is the store's
        address = ",".join(map(hosts.address, leaders)) if hosts else "127.0.0.1"
        if job.launcher:
            remote_shell = folder / "remote_shell"
            argv += ["-H", ",".join(map(hosts.name, range(job.nodes))), "--ssh", shlex.quote(str(remote_shell)), "--chdir", folder]
            # A host finds this dtrun. What a launch leaves in its user's home stays with the run.
            environment = {"PATH": f"{os.path.dirname(job.dtrun)}:{os.environ['PATH']}", "HOME": str(folder),
                           "XDG_STATE_HOME": str(folder / "state"), "XDG_CACHE_HOME": str(folder / "cache")}
        else:
            argv += ["--rdzv_endpoint", f"{address}:{port}"]
        if job.store:
            store_argv = [job.dtrun, "store", "--bind", address, "--port", str(port)]
    argv = [*map(str, argv), str(folder / "config.json")]
    return Training(folder, folder / "out/metrics.jsonl", max_steps, job.nodes, job.nproc_per_node, argv, store_argv, port,
                    environment, hosts, remote_shell, job.consoles)

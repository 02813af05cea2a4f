"""The blows of scripts/chaos: what each kind of fault does to the processes of a chaos_run.Training."""

import contextlib
import os
import signal
import time
from typing import NamedTuple

import chaos_plan

ORPHAN_LIMIT_S = 10  # that workers may outlive their agent
LEAVE_LIMIT_S = 60  # from SIGTERM to an agent's end
RETURN_AFTER_S = 1.0  # from an agent's or a store's end to the start of the one in its place
EXIT_LEFT = 128 + signal.SIGTERM


class Struck(NamedTuple):
    fault: chaos_plan.Fault
    time: float  # by the clock that metrics.jsonl goes by, read just before the signal; of who is in touch again, then
    pids: tuple  # that got the signal
    first: int  # index of the first step that may be later


def pids_at(training, places):
    """Of the workers at these places; None while one of them does not run."""
    found = {(node, local_rank): pid for node in {node for node, _ in places}
             for local_rank, pid in training.workers(node).items()}
    return tuple(found[place] for place in places) if all(place in found for place in places) else None


def signal_workers(training, places, number):
    """Sends the signal to the workers at these places, together. The time and their pids; None if the job ended before
    all of them ran."""
    while training.train_until(lambda: pids_at(training, places)):
        pids = pids_at(training, places) or ()
        with contextlib.suppress(OSError), contextlib.ExitStack() as opened:
            handles = []
            for pid in pids:  # a pid may be another process's a moment later, a handle not
                handles.append(os.pidfd_open(pid))
                opened.callback(os.close, handles[-1])
            at = time.time()
            for handle in handles:
                signal.pidfd_send_signal(handle, number)
            if pids:
                return at, pids
    return None


def send(number, pids):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def kill_agent(training, node, workers_too):
    """Otherwise its workers have to die with it. None if it has gone."""
    agent, workers = training.agent_pid(node), list(training.workers(node).values())
    if agent is None:
        return None
    at = time.time()
    send(signal.SIGKILL, [agent, *(workers if workers_too else ())])
    if not training.wait_for(lambda: not any(map(training.runs, [agent, *workers])), ORPHAN_LIMIT_S):
        orphans = ", ".join(str(pid) for pid in workers if training.runs(pid))
        training.problems.append(f"workers of node {node} outlived their agent by {ORPHAN_LIMIT_S} s: pid {orphans}")
    return at, (agent,)


def dismiss_agent(training, node):
    agent = training.agents[node]
    at = time.time()
    agent.process.terminate()
    if not training.wait_for(agent.ended, LEAVE_LIMIT_S):
        training.problems.append(f"the agent of node {node} (pid {agent.pid}) did not end within {LEAVE_LIMIT_S} s of "
                                 "SIGTERM")
        agent.kill_all()
    elif agent.process.returncode not in (EXIT_LEFT, 0):  # 0: the job was just over
        training.problems.append(f"an agent of node {node} that got SIGTERM: {agent.ending()}")
    return at, (agent.pid,)


def replace_store(training):
    store = training.store
    at = time.time()
    store.process.kill()
    training.wait_for(store.ended, ORPHAN_LIMIT_S)
    training.pause(RETURN_AFTER_S)
    training.start_store()
    return at, (store.pid,)


def terminate_all(training):
    """As systemd and supervisors do it. Counted from the new start."""
    mains = training.mains()
    agents = [pid for node in range(training.nodes) if (pid := training.agent_pid(node))]
    workers = [pid for node in range(training.nodes) for pid in training.workers(node).values()]
    pids = {program.pid for program in mains.values()} | {*agents, *workers}
    send(signal.SIGTERM, pids)
    if not training.wait_for(lambda: all(program.ended() for program in mains.values()), LEAVE_LIMIT_S):
        training.problems.append(f"after SIGTERM to all at once something runs for {LEAVE_LIMIT_S} s")
    for name, program in mains.items():
        if program.ended() and program.process.returncode not in (EXIT_LEFT, 0):  # 0: the job was just over
            training.problems.append(f"the {name} got SIGTERM with all others: {program.ending()}")
        program.kill_all()
    training.pause(RETURN_AFTER_S)
    at = time.time()
    training.start_agents()
    return at, tuple(sorted(pids))


def freeze_disk(training, fault):
    """Counted from when it answers again. Nobody may be given up meanwhile."""
    given_up = training.words().count("was silent for")
    with training.hosts.frozen(fault.node):
        training.pause(fault.seconds)
        at = time.time()
    training.pause(RETURN_AFTER_S)
    if training.words().count("was silent for") > given_up:
        training.problems.append(f"a node was given up while the disk of node {fault.node} did not answer")
    return at, (training.agent_pid(fault.node),)


def block_console(training, fault):
    """A worker is killed while nobody reads, and the job must go on meanwhile."""
    with training.unread(fault.node):
        blow = signal_workers(training, fault.workers, signal.SIGKILL)
        if blow is None:
            return None
        first = len(training.metrics.steps)
        training.pause(fault.seconds)
        steps = training.metrics.steps[max(0, first - 1):]
        if not training.ended() and chaos_plan.recovery_step("console", blow[0], steps) is None:
            training.problems.append(f"fault {fault.number}: with a terminal that nobody reads the job did not go on within "
                                     f"{fault.seconds:.0f} s of a worker's end")
    return blow


def cut_off(training, fault):
    """Counted from when the cable is whole again."""
    training.hosts.cut(fault.node, fault.way)
    training.pause(fault.seconds)
    at = time.time()
    training.hosts.mend(fault.node, fault.way)
    return at, (training.agent_pid(fault.node),)


def freeze(training, fault):
    """Counted from when it may run again. None if it has gone."""
    pid = {"agent": lambda: training.agent_pid(fault.node), "coordinator": training.coordinator_pid,
           "launcher": lambda: training.launcher.pid}[fault.way]()
    if pid is None:
        return None
    with contextlib.ExitStack() as opened:
        handle = os.pidfd_open(pid)
        opened.callback(os.close, handle)
        signal.pidfd_send_signal(handle, signal.SIGSTOP)
        training.pause(fault.seconds)
        at = time.time()
        signal.pidfd_send_signal(handle, signal.SIGCONT)
    return at, (pid,)


def blow_of(training, fault):
    if fault.kind in chaos_plan.OF_A_CABLE:
        return cut_off(training, fault)
    if fault.kind == "freeze":
        return freeze(training, fault)
    if fault.kind in ("worker", "workers", "all"):
        return signal_workers(training, fault.workers, signal.SIGKILL)
    if fault.kind == "stop":
        return signal_workers(training, fault.workers, signal.SIGSTOP)
    if fault.kind == "quit":
        return signal_workers(training, fault.workers, signal.SIGTERM)
    if fault.kind == "disk":
        return freeze_disk(training, fault)
    if fault.kind == "console":
        return block_console(training, fault)
    if fault.kind == "terminate":
        return terminate_all(training)
    if fault.kind == "store":
        return replace_store(training)
    if fault.kind == "leave":
        blow = dismiss_agent(training, fault.node)
    else:
        blow = kill_agent(training, fault.node, workers_too=fault.kind == "node")
    if not training.launcher:  # which does it itself
        training.pause(RETURN_AFTER_S)
        training.start_agent(fault.node)
    return blow


def strike(training, fault):
    """None if the job ends, so that there might be no step after the blow."""
    training.metrics.look()
    first = len(training.metrics.steps)
    if training.is_about_to_end():
        return None
    blow = blow_of(training, fault)
    return blow and Struck(fault, *blow, first)

"""Steps that survive the death of peers.

A generation: a place is waited for (Ready, Start), groups are made, who is furthest sends its state to who is behind. Then
steps, until a collective breaks or the agent says so; what is left is the state of the last whole step. The end of a
`with` block is the commit: from the first optimizer's update to there the state is half a step's ("torn")."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from typing import Any, Iterator

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from . import _control, _torch_private
from ._control import Agent, Left
from ._groups import Groups, choose_interface
from ._pause import LastStep
from ._state import receive_state, send_state
from ._store import AgentStore
from .job import Job, Step, start_plain

STOP_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)  # the loop ends after the step in hand
PEER_S = 0.2  # how long to wait for a peer's count of collectives: it says it as soon as it waits itself
MOST_ERROR = 200  # characters of an error that the agent is told
NOTHING_WHOLE = ("no worker holds a whole state: a step broke after its first optimizer.step(). Collectives of a step belong "
                 "before that; all begin again")
OUTSIDE = ("a collective outside of a step's block broke, so nobody can do it again: put it to the beginning of a block "
           "(`with step:`), which is repeated")


class ElasticStep(Step):
    """What the block may change is remembered at its beginning, and put back if it breaks."""

    def __init__(self, job: ElasticJob, number: int, data: Any) -> None:
        super().__init__(job, number, data)
        self._elastic = job
        self.error = ""

    def __enter__(self) -> Any:
        self._random = torch.get_rng_state()
        self._buffers = [buffer.clone() for buffer in self._elastic.buffers]
        batch = super().__enter__()
        self._elastic.inside = True
        return batch

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        job = self._elastic
        job.inside = False
        if error is None:
            return super().__exit__(kind, error, trace)
        if not job.is_fault(error):
            if isinstance(error, Exception):
                job.end_on(error)
            return False
        self.error = "" if job.agent.left.is_set() else str(error)[:MOST_ERROR]
        if job.leave():
            torch.set_rng_state(self._random)
            with torch.no_grad():
                for buffer, before in zip(job.buffers, self._buffers):
                    buffer.copy_(before)
        return True


class ElasticJob(Job):
    def __init__(self, backend: str, agent: Agent) -> None:
        super().__init__()
        self.agent = agent
        self.buffers: list[torch.Tensor] = []
        self.inside = False  # a step's block
        self._groups = Groups(backend)
        self._last_step = LastStep(agent)
        self._optimizers: list[torch.optim.Optimizer] = []
        self._wrappers: list[DistributedDataParallel] = []
        self._touched = False  # an optimizer has begun to change the parameters in this step
        self._torn = False     # the state is half a step's: of no use
        self._in_generation = False
        self._finishing = False
        self._earlier_handlers: dict[int, Any] = {}
        agent.on_start, agent.on_pause, agent.waits = self._placed, self._pause, self._waits
        self._groups.make_alone()
        atexit.register(self._groups.destroy)  # else a thread of gloo may end the process with SIGABRT

    # ---- what the script says

    def keep(self, **things: Any) -> None:
        super().keep(**things)
        for thing in things.values():
            if isinstance(thing, torch.optim.Optimizer):
                self._optimizers.append(thing)
                _torch_private.before_update(thing, self._before_update)
            if isinstance(thing, torch.nn.Module):
                self._wrappers += [module for module in thing.modules() if isinstance(module, DistributedDataParallel)]
                self.buffers += list(thing.buffers())

    def steps(self, total: int, data: Any = None, start: int = 0, min_workers: int = 1) -> Iterator[Step]:
        if not self._things:
            raise RuntimeError("job.keep(model=…, opt=…) comes before job.steps: a newcomer has to be sent the state")
        self.done = start or None
        _tell_of_collectives_outside(self)
        self._handle_stop_signals()
        error = ""
        try:
            while self._join(error, total, data, min_workers):
                error = yield from self._generation(total, data)
                if self.stopping:
                    self.leave()  # a peer that has begun the next step does not wait for what this script does now
                    break
                if self._in_generation and self._all_done():
                    break
        finally:
            self._in_generation = False  # what follows takes as long as it takes
            self._restore_interrupt()
        if self.done is None:
            raise SystemExit(_control.EXIT_STOPPED)  # told to end, and nothing to save
        self.agent.report(step=self.done)

    def _generation(self, total: int, data: Any) -> Iterator[Step]:
        while self.done < total and not self.stopping:
            if not self._last_step.may_enter(self.done):
                self.leave()
                return ""
            step = ElasticStep(self, self.done, data)
            yield step
            step.require_used()
            if not self._in_generation:
                return step.error
        return ""

    def _all_done(self) -> bool:
        """Nobody goes before all have done the last step: whoever dies in it would leave no peer with the state."""
        self._finishing = True
        try:
            self.agent.set(f"dtrun/done/{self.rank}", b"")
            AgentStore(self.agent).wait([f"dtrun/done/{rank}" for rank in range(self.world_size)])
            return True
        except (Left, TimeoutError):
            self.leave()
            return self.stopping
        finally:
            self._finishing = False

    # ---- a generation

    def _join(self, error: str, total: int, data: Any, min_workers: int) -> bool:
        while True:
            place = self.agent.ready(self.done, self._torn, error)
            if place is None:
                return False  # told to end
            error = ""
            self.rank, self.world_size = place["rank"], place["world_size"]
            self.local_rank, self.generation = place["local_rank"], int(place["generation"])
            if self.world_size < min_workers:
                self.agent.over.wait()  # the next one will be larger
                continue
            try:
                self._meet(place.get("address", ""))
                break
            except Exception as problem:  # a pybind'ed store's Left comes as what pybind makes of it
                if not self.is_fault(problem):
                    raise
                error = "" if self.agent.left.is_set() else str(problem)[:MOST_ERROR]
                self.leave()
        if data is not None:
            data.place(self.generation, self.rank, self.world_size, self.done)
        self.agent.report(phase="TRAINING", step=self.done, total_steps=total, first_step=self.done)
        return True

    def _meet(self, address: str) -> None:
        os.environ.update(RANK=str(self.rank), WORLD_SIZE=str(self.world_size), LOCAL_RANK=str(self.local_rank))
        choose_interface(address)
        self._groups.destroy()
        with self._groups.watched():
            self._groups.make(AgentStore(self.agent, self.rank, self.world_size), self.rank, self.world_size)
            for function in self._on_regroup:
                function(self)
        for wrapper in self._wrappers:
            _torch_private.remake_wrapper(wrapper)
        self._in_generation = True
        self._agree()

    def leave(self) -> bool:
        """The state is that of the last whole step; of the broken one nothing is left. False if the state is torn."""
        self._in_generation = False
        self._groups.destroy()
        for optimizer in self._optimizers:
            optimizer.zero_grad()
        if self._touched:
            self.done, self._touched, self._torn = None, False, True  # a peer has the whole, or nobody
            return False
        return True

    def _agree(self) -> None:
        """All go on from the furthest step that any of them holds; who is behind is sent it by one who is there."""
        mine = torch.tensor([(-2 if self._torn else -1) if self.done is None else self.done])
        held = [torch.zeros_like(mine) for _ in range(self.world_size)]
        dist.all_gather(held, mine)
        steps = [int(one) for one in held]
        furthest = max(steps)
        sources = [rank for rank, one in enumerate(steps) if one == furthest]
        if furthest < 0 and -2 in steps:
            raise SystemExit("dtrun: " + NOTHING_WHOLE)
        if furthest < 0:
            furthest, sources = 0, [0]  # nobody has trained yet: rank 0's initial values, as DDP would have it
        for number, rank in enumerate(rank for rank in range(self.world_size) if rank not in sources):
            source = sources[number % len(sources)]
            if self.rank == source:
                send_state(self._state(), rank)
            elif self.rank == rank:
                self._load(receive_state(source))
        self.done, self._torn = furthest, False

    def _state(self) -> dict[str, Any]:
        things = {name: thing.state_dict() for name, thing in self._things.items()}
        return {"things": things, "random": torch.get_rng_state()}

    def _load(self, state: dict[str, Any]) -> None:
        if state["things"].keys() != self._things.keys():
            raise SystemExit(f"dtrun: a peer keeps {sorted(state['things'])}, this worker {sorted(self._things)}: all have to "
                             "call job.keep with the same")
        for name, thing in self._things.items():
            thing.load_state_dict(state["things"][name])
        torch.set_rng_state(state["random"])

    # ---- a step

    def _before_update(self) -> None:
        """What the optimizer reads must be final, and not the ruins of a broken collective."""
        if torch.cuda.is_initialized():
            torch.cuda.current_stream().synchronize()
        if self.agent.left.is_set():
            raise Left()
        self._touched = self.inside

    def commit(self, number: int, shown: dict[str, Any]) -> None:
        self._touched = False
        self.done = number + 1
        self.agent.note(step=self.done, **shown)
        self.agent.pulse()
        if self.agent.reported("first_step") == number:
            self.agent.report()  # the generation trains: the agent's measure of a recovery

    def is_fault(self, error: BaseException) -> bool:
        """A peer's; or this worker was told to leave, and any may be what follows from that."""
        if not isinstance(error, Exception):
            return False
        return self.agent.left.is_set() or isinstance(error, Left) or _torch_private.is_peers_fault(error)

    def end_on(self, error: Exception) -> None:
        """An error of the script's own: nobody has to wait for this process, which ends as it would, but without torch's
        second or two of clean-up."""
        self._groups.break_all()
        hook = sys.excepthook

        def tell_and_end(*what: Any) -> None:
            hook(*what)
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(1)

        self.agent.fault(f"{type(error).__name__}: {error}")
        sys.excepthook = tell_and_end

    # ---- by other threads than the script's

    def _placed(self, place: dict[str, Any]) -> None:
        self._last_step.begin_generation(place["rank"], place["world_size"])

    def _pause(self, after_step: bool) -> None:
        """It breaks collectives, never Python code."""
        if after_step:
            self._last_step.asked()
        else:
            self._groups.break_all()

    def _waits(self) -> bool:
        """Whether a peer has begun fewer collectives than this worker, or does not say how many."""
        if not self._in_generation or self._finishing or self.agent.left.is_set():
            return True  # for a place, or for the others to be done
        mine = _torch_private.collectives_begun()
        if mine is None:
            return True
        try:
            self.agent.set(f"dtrun/collectives/{self.rank}", str(mine).encode())
            others = (rank for rank in range(self.world_size) if rank != self.rank)
            return any(int(self.agent.get(f"dtrun/collectives/{rank}", PEER_S)) < mine for rank in others)
        except (TimeoutError, Left):
            return True

    # ---- told to end

    def _handle_stop_signals(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        for number in STOP_SIGNALS:
            earlier = signal.signal(number, self._told_to_end)
            if earlier != self._told_to_end:
                self._earlier_handlers[number] = earlier

    def _told_to_end(self, number: int, frame: Any) -> None:
        self.stopping = True
        self.agent.stop_waiting()
        earlier = self._earlier_handlers[number]
        if callable(earlier) and earlier is not signal.default_int_handler:
            earlier(number, frame)

    def _restore_interrupt(self) -> None:
        """Behind the loop a Ctrl-C is the script's again, as before it. Who sends another signal gives the script the time to
        save."""
        if signal.getsignal(signal.SIGINT) == self._told_to_end:
            signal.signal(signal.SIGINT, self._earlier_handlers[signal.SIGINT])


def _tell_of_collectives_outside(job: ElasticJob) -> None:
    hook = sys.excepthook

    def tell(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        hook(kind, error, trace)
        if not job.inside and _torch_private.is_peers_fault(error):
            print("dtrun: " + OUTSIDE, file=sys.stderr, flush=True)

    sys.excepthook = tell


def start(backend: str = "gloo") -> Job:
    """In place of dist.init_process_group. Where workers outlive generations, each is alone until the first step of a loop:
    its world has one rank, and it talks to no peer."""
    agent = _control.connect()
    lacks = _torch_private.missing()
    if agent is not None and agent.hello(outlives=not lacks):
        # NCCL's watchdog ends the process by default.
        os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "0"
        return ElasticJob(backend, agent)
    if agent is not None and os.environ.get("RANK") == "0":
        why = f"this torch has no {lacks}" if lacks else "dtrun was started without --recovery memory"
        _control.notice(f"{why}: after a failure all workers begin again")
    return start_plain(backend)

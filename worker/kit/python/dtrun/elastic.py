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
from typing import Any, Callable, Iterable, Iterator

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from . import _control, _torch_private
from ._agreement import TORN, held, held_by_units, transfers
from ._control import Agent, Left
from ._groups import Groups, choose_interface
from ._pause import AgreedStep, LastStep
from ._state import receive_state, send_state
from ._store import AgentStore
from ._units import Twins, Unit, Votes, average, check_unit
from .job import Job, Step, start_plain

STOP_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)  # the loop ends after the step in hand
MOST_COLLECTIVES = 1 << 20  # of a step
MOST_ERROR = 200  # characters of an error that the agent is told
NOTHING_WHOLE = ("no worker holds a whole state: a step broke after its first optimizer.step(). Collectives of a step belong "
                 "before that; all begin again")
NO_WHOLE_UNIT = "no unit holds a whole state: all begin again"
AVERAGE_FIRST = ("with units, a step calls job.average(model.parameters()) once, between backward and the first optimizer.step(): "
                 "who has updated can neither do the step again nor be sure that its peers did it")
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
        self._elastic.count_from(self.number)
        batch = super().__enter__()
        self._elastic.begin_step()
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
    def __init__(self, backend: str, agent: Agent, unit: int) -> None:
        super().__init__()
        self.agent = agent
        self.buffers: list[torch.Tensor] = []
        self.inside = False  # a step's block
        self._unit = Unit(unit, self.local_rank % unit)
        self._groups: Groups = Twins(backend, self._unit) if unit > 1 else Groups(backend)
        self._last_step: LastStep | AgreedStep = AgreedStep() if unit > 1 else LastStep(agent)
        self._end_asked = False
        self._averaged = False  # in this step
        self._averages = 0      # of units
        self._optimizers: list[torch.optim.Optimizer] = []
        self._wrappers: list[DistributedDataParallel] = []
        self._touched = False  # an optimizer has begun to change the parameters in this step
        self._torn = False     # the state is half a step's: of no use
        self._in_generation = False
        self._finishing = False
        # The newest step of this generation whose block has begun, and the collectives begun by then.
        self._begun: tuple[int, int | None] | None = None
        self._earlier_handlers: dict[int, Any] = {}
        agent.on_start, agent.on_pause = self._placed, self._pause
        agent.waits, agent.collectives = self._waits, self._collectives
        if isinstance(self._groups, Twins):
            self._groups.make_unit(agent.unit_file)
        else:
            self._groups.make_alone()
        atexit.register(self._groups.end)

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
        def wait_for_all() -> None:
            try:
                self.agent.set(f"dtrun/done/{self.rank}", b"")
                AgentStore(self.agent).wait([f"dtrun/done/{rank}" for rank in range(self.world_size)])
            except TimeoutError as error:
                raise Left() from error

        self._finishing = True
        try:
            self._together(wait_for_all)
            return True
        except Exception as problem:
            if not self.is_fault(problem):
                raise
            self.leave()
            return self.stopping
        finally:
            self._finishing = False

    # ---- a generation

    def _join(self, error: str, total: int, data: Any, min_workers: int) -> bool:
        while True:
            place = self.agent.ready(self.done, self._torn, error)
            if place is None:
                self.stopping = True
                return False
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
        self._together(self._make_groups)
        if self._unit.size > 1:
            self._tell_of_regroup()  # its collectives are the unit's: all of that is here now
        self._in_generation = True
        self._agree()

    def _make_groups(self) -> None:
        number, count = self.rank // self._unit.size, self.world_size // self._unit.size
        self._store = AgentStore(self.agent, number, count)  # a PrefixStore keeps nothing of it that is Python's
        with self._groups.watched(self.world_size):
            self._groups.make(dist.PrefixStore(f"place{self._unit.place}", self._store), number, count)
            if self._unit.size == 1:
                self._tell_of_regroup()
        for wrapper in self._wrappers if self._unit.size == 1 else ():
            _torch_private.remake_wrapper(wrapper)

    def _tell_of_regroup(self) -> None:
        for function in self._on_regroup:
            function(self)

    def leave(self) -> bool:
        """The state is that of the last whole step; of the broken one nothing is left. False if the state is torn."""
        self._in_generation, self._begun = False, None
        self._groups.destroy()
        for optimizer in self._optimizers:
            optimizer.zero_grad()
        if self._touched:
            self.done, self._touched, self._torn = None, False, True  # a peer has the whole, or nobody
            return False
        return True

    def _agree(self) -> None:
        """All go on from the furthest step that any of them holds."""
        steps: list[int] = []
        self._together(lambda: steps.extend(self._gather(held(self.done, self._torn))))
        furthest, pairs = transfers(held_by_units(*self._unit.range_of(steps)))
        if furthest == TORN:
            raise SystemExit("dtrun: " + (NO_WHOLE_UNIT if self._unit.size > 1 else NOTHING_WHOLE))
        received: list[dict[str, Any]] = []
        self._together(lambda: received.extend(self._exchange(pairs)))
        for state in received:
            self._load(state)
        self.done, self._torn = furthest, False

    def _gather(self, mine: int) -> list[int]:
        """What each of those holds who should hold the same."""
        everyone = [torch.zeros(1, dtype=torch.int64) for _ in range(self.world_size // self._unit.size)]
        self._groups.peers.allgather([everyone], [torch.tensor([mine])]).wait()
        return [int(one) for one in everyone]

    def _exchange(self, pairs: list[tuple[int, int]]) -> list[dict[str, Any]]:
        """Sends states, or returns the one that was received."""
        number = self.rank // self._unit.size
        for source, receiver in pairs:
            if number == source:
                send_state(self._state(), self._groups.peers, receiver, self._meshes())
            elif number == receiver:
                return [receive_state(self._groups.peers, source, self._meshes())]
        return []

    def _together(self, part: Callable[[], Votes | None]) -> Votes:
        return self._unit.together(part, lambda error: self.agent.left.is_set() or self.is_fault(error))

    def _meshes(self) -> list[Any]:
        """Of the parameters that are sharded, in an order that all ranks have."""
        modules = [thing for thing in self._things.values() if isinstance(thing, torch.nn.Module)]
        meshes = [parameter.device_mesh for module in modules for parameter in module.parameters()
                  if hasattr(parameter, "device_mesh")]
        return [mesh for at, mesh in enumerate(meshes) if mesh not in meshes[:at]]

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

    def count_from(self, number: int) -> None:
        self._begun = number, self._counted()

    def average(self, parameters: Iterable[torch.Tensor]) -> None:
        units = self._unit.size > 1
        if self._touched or (units and self._averaged):
            raise RuntimeError(AVERAGE_FIRST)

        def with_twins() -> Votes:
            if self.agent.left.is_set():
                raise Left()
            self._averages += units
            average(self._groups.peers, self.world_size // self._unit.size, parameters)
            told = torch.tensor([units and self._last_step.told], dtype=torch.int32)
            if units:
                self._groups.peers.allreduce([told], dist.ReduceOp.MAX).wait()
            return Votes(bool(told), self._end_asked)

        votes = self._together(with_twins)
        self._averaged = True
        if units:
            self._last_step.over, self.stopping = votes.generation_ends, votes.loop_ends

    def _before_update(self) -> None:
        """What the optimizer reads must be final, and not the ruins of a broken collective."""
        if self.inside and self._unit.size > 1 and not self._averaged:
            raise RuntimeError(AVERAGE_FIRST)
        if torch.cuda.is_initialized():
            torch.cuda.current_stream().synchronize()
        if self.agent.left.is_set() and self._unit.size == 1:
            raise Left()
        self._touched = self.inside

    def begin_step(self) -> None:
        self.inside, self._averaged = True, False

    def commit(self, number: int, shown: dict[str, Any]) -> None:
        self._touched = False
        self.done = number + 1
        self.agent.note(step=self.done, **shown)
        self.agent.pulse()
        if self.agent.reported("first_step") == number:
            self.agent.report()  # the generation trains: the agent's measure of a recovery

    def is_fault(self, error: BaseException) -> bool:
        """A peer's; or this worker was told to leave, and any may be what follows from that (not with units, where an order to
        leave breaks nothing but what is done together)."""
        if not isinstance(error, Exception):
            return False
        told = self.agent.left.is_set() and self._unit.size == 1
        return told or isinstance(error, Left) or _torch_private.is_peers_fault(error)

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
        """For a place, or for the others to be done; or this torch does not count, and nobody can tell."""
        return self._collectives() is None

    def _collectives(self) -> int | None:
        """Step by step, since messages between two ranks are counted too: of two ranks the one in a later step is ahead."""
        begun, now = self._begun, self._counted()
        if begun is None or begun[1] is None or now is None or self._finishing or not self._in_generation:
            return None
        return begun[0] * MOST_COLLECTIVES + now - begun[1]

    def _counted(self) -> int | None:
        begun = _torch_private.collectives_begun()
        return None if begun is None else begun + self._averages

    # ---- told to end

    def _handle_stop_signals(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        for number in STOP_SIGNALS:
            earlier = signal.signal(number, self._told_to_end)
            if earlier != self._told_to_end:
                self._earlier_handlers[number] = earlier

    def _told_to_end(self, number: int, frame: Any) -> None:
        self._end_asked = True
        self.stopping = self.stopping or self._unit.size == 1  # else after the step in which the unit agrees
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


def start(backend: str = "gloo", unit: int = 1) -> Job:
    """In place of dist.init_process_group. Where workers outlive generations, each is alone until the first step of a loop:
    its world has one rank, and it talks to no peer.

    `unit`: so many neighbouring ranks hold one state together, such as the shards of FSDP. They are the world that
    torch.distributed sees, from here on; job.average(parameters) averages gradients over the units."""
    agent = _control.connect()
    lacks = _torch_private.missing()
    if agent is not None:
        check_unit(unit, int(os.environ.get("LOCAL_WORLD_SIZE", unit)), "--nproc_per_node")
    if agent is not None and agent.hello(not lacks, unit):
        if unit > 1 and not agent.unit_file:
            raise SystemExit("dtrun.start(unit=…): the agent has no folder for temporary files: set TMPDIR")
        # NCCL's watchdog ends the process by default.
        os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "0"
        return ElasticJob(backend, agent, unit)
    if agent is not None and os.environ.get("RANK") == "0":
        why = f"this torch has no {lacks}" if lacks else "dtrun was started without --recovery memory"
        _control.notice(f"{why}: after a failure all workers begin again")
    return start_plain(backend, unit)

"""Steps that survive the death of peers.

A generation: a place is waited for (Ready, Start), groups are made, who is furthest sends its state to who is behind. Then
steps, until a collective breaks or the agent says so; what is left is the state of the last whole step. The end of a
`with` block is the commit: from the first optimizer's update to there the state is half a step's ("torn"). Before that update
all ranks vote (_rounds.py). Behind the loop goes who holds the state in which it ended, and nobody else."""

from __future__ import annotations

import atexit
import dis
import os
import signal
import sys
import threading
import types
from typing import Any, Callable, Iterable, Iterator

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from . import _control, _torch_private
from ._agreement import TORN, Did, held, held_by_units, transfers
from ._control import Agent, Left
from ._groups import Groups, choose_interface
from ._rounds import Rounds, StepError
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
LEAVES_ALONE = "; a loop ends on all ranks together, by job.stop() on any of them"
NO_UPDATE_TOLD = 100  # steps
NO_UPDATE = (f"no optimizer of job.keep(…) has done a step in {NO_UPDATE_TOLD} steps: is the one that the script uses among them, "
             "and is its step() called?")
OUTSIDE = ("a collective outside of a step's block broke, so nobody can do it again: put it to the beginning of a block "
           "(`with step:`), which is repeated")


class ElasticStep(Step):
    """What the block may change is remembered at its beginning, and put back if it breaks."""

    def __init__(self, job: ElasticJob, number: int, data: Any) -> None:
        super().__init__(job, number, data)
        self._elastic = job
        self.error = ""

    def __enter__(self) -> Any:
        job = self._elastic
        if self._used:
            job.complain(f"begins step {self.number} a second time")
        self._random = torch.get_rng_state()
        self._buffers = [buffer.clone() for buffer in job.buffers]
        job.count_from(self.number)
        batch = super().__enter__()
        job.begin_step()
        return batch

    def require_used(self) -> None:
        if not self._used:
            self._elastic.complain(f"does not begin step {self.number}: the body of the loop has to begin with `with step:`")

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        job, own = self._elastic, error
        if isinstance(error, SystemExit):
            job.exits(self.number, error)
        try:
            if error is None:
                job.vote_once(updates=False)
            else:
                job.complain_if_found(self.number)
        except Exception as problem:
            error = problem
        job.inside = False
        if error is None:
            return super().__exit__(kind, error, trace)
        if not job.is_fault(error):
            if isinstance(error, Exception):
                job.end_on(error)
            if error is not own:
                raise error from None
            return False
        self.error = "" if job.agent.left.is_set() else (str(error) or type(error).__name__)[:MOST_ERROR]
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
        self._rounds = Rounds(agent, self._groups.break_all)
        self._end_asked = False
        self._voted = False     # in this step; with units, its gradients are averaged
        self._over = False      # the generation, after the step in hand
        self._holds = False     # the job's state, of a generation in which all had the same; else what the script has loaded
        self._loaded = 0        # steps done by that
        self._no_update: int | None = 0  # steps so far; None: there was one, or it was told
        self._left = ""         # how this rank left the loop by itself
        self._fails = False     # with an error that was told
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
        agent.waits, agent.collectives, agent.look = self._waits, self._collectives, self._look
        if isinstance(self._groups, Twins):
            self._groups.make_unit(agent.unit_file)
        else:
            self._groups.make_alone()
        atexit.register(self._groups.end)
        atexit.register(self._end_who_left)

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
        self.done, self._holds, self._loaded, self.stopping = start, False, start, False
        self._no_update = 0
        _tell_of_collectives_outside(self)
        self._handle_stop_signals()
        error = ""
        try:
            while self._join(error, total, data, min_workers):
                error = yield from self._generation(total, data)
                if self._in_generation and self._all_done():
                    break
        except GeneratorExit:
            if self.done < total:
                self._loop_left(total)
            while self.done >= total and not (self._in_generation and self._all_done()) and self._join("", total, data, min_workers):
                pass  # it leaves after its last step
            raise
        finally:
            self._in_generation = False  # what follows takes as long as it takes
            self._restore_interrupt()
        self.agent.report(step=self.done)

    def _generation(self, total: int, data: Any) -> Iterator[Step]:
        while self.done < total and not self.stopping:
            if self._over:
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
        self._finishing, self._voted = True, False
        try:
            self.vote_once(updates=False)
            return True
        except Exception as problem:
            if not self.is_fault(problem):
                raise
            self.leave()
            return False
        finally:
            self._finishing = False

    # ---- a rank that leaves its peers

    def exits(self, step: int, error: SystemExit) -> None:
        """From its block. With a code of its own it fails as it would alone."""
        if self.world_size == 1 or self.stopping or self._end_asked:
            return
        left = f"rank {self.rank} left the loop in step {step}: sys.exit({'' if error.code is None else error.code})"
        self._groups.break_all()
        if error.code in (None, 0):
            self._left = left + LEAVES_ALONE
            self._end_who_left()
        self.agent.fault(left)

    def _loop_left(self, total: int) -> None:
        """The script does not ask for the next step: by break or return, or as an error passes through, which nobody can see from
        here. In that case this is no rank any more, and the process does not end with 0."""
        if self.world_size == 1 or self.stopping or self._end_asked or self._fails:
            return
        left = f"rank {self.rank} left the loop after step {self.done - 1} of {total}" + LEAVES_ALONE
        by_itself = _drops_loop(sys._getframe(1).f_back)
        self.agent.fault(left, final=by_itself)
        self._groups.break_all()
        self._left, self.rank = left, -1
        if by_itself:
            self._end_who_left()

    def left_alone(self) -> bool:
        """Whether it was as an error of the script's own passed through: that is told in place of this."""
        left, self._left = self._left, ""
        return bool(left)

    def _end_who_left(self) -> None:
        if not self._left:
            return
        self.agent.fault(self._left, final=True)
        print("dtrun: " + self._left, file=sys.stderr, flush=True)
        sys.stdout.flush()
        os._exit(1)

    def complain(self, what: str) -> None:
        error = StepError(f"rank {self.rank} {what}")
        self.end_on(error)
        raise error

    def complain_if_found(self, step: int) -> None:
        if self._unit.size == 1:
            self._rounds.complain(step)

    # ---- a generation

    def _join(self, error: str, total: int, data: Any, min_workers: int) -> bool:
        while True:
            place, end = self.agent.ready(self.done if self._holds else None, self._torn, error)
            if end is not None:
                return self._end_waiting(end)
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
                error = "" if self.agent.left.is_set() else (str(problem) or type(problem).__name__)[:MOST_ERROR]
                self.leave()
        if data is not None:
            data.place(self.generation, self.rank, self.world_size, self.done)
        self.agent.report(phase="TRAINING", step=self.done, total_steps=total, first_step=self.done)
        return True

    def _end_waiting(self, end: dict[str, Any]) -> bool:
        """There is no further generation for this worker, which waits for one. Others may hold a later state, or go on."""
        if not end.get("last") or not self._holds:
            raise SystemExit(0)
        self.rank, self.world_size, self.stopping = end["rank"], end["world_size"], True
        return False

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
        self._in_generation, self._begun, self._over = False, None, False
        self._groups.destroy()
        for optimizer in self._optimizers:
            optimizer.zero_grad()
        if self._touched:
            self._holds, self._touched, self._torn = False, False, True  # a peer has the whole, or nobody
            return False
        return True

    def _agree(self) -> None:
        """All go on from the furthest step that any of them holds."""
        said: list[list[int]] = []
        mine = [held(self.done if self._holds else None, self._torn), self._loaded, int(self.stopping)]
        self._together(lambda: said.extend(self._gather(mine)))
        states, loaded, stops = (self._unit.range_of(list(column)) for column in zip(*said))
        held_by = held_by_units(*states)
        furthest, pairs = transfers(held_by, loaded[0])
        if furthest == TORN:
            raise SystemExit("dtrun: " + (NO_WHOLE_UNIT if self._unit.size > 1 else NOTHING_WHOLE))
        received: list[dict[str, Any]] = []
        self._together(lambda: received.extend(self._exchange(pairs)))
        for state in received:
            self._load(state)
        if max(held_by) < 0 and self.generation > 1 and self.rank == 0:
            _control.notice(f"no worker holds a state of this job: all begin at step {furthest}, from what the script has loaded")
        self.done, self._holds, self._torn, self.stopping = furthest, True, False, max(stops[1]) > 0

    def _gather(self, mine: list[int]) -> list[list[int]]:
        """What each of those says who should hold the same."""
        everyone = [torch.zeros(len(mine), dtype=torch.int64) for _ in range(self.world_size // self._unit.size)]
        self._groups.peers.allgather([everyone], [torch.tensor(mine)]).wait()
        return [one.tolist() for one in everyone]

    def _exchange(self, pairs: list[tuple[int, int]]) -> list[dict[str, Any]]:
        """Sends states, or returns the one that was received."""
        number = self.rank // self._unit.size
        for source, receiver in pairs:
            if number == source:
                send_state(self._state(), self._groups.peers, receiver, self._meshes())
            elif number == receiver:
                return [receive_state(self._groups.peers, source, self._meshes(), self._state())]
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
        if self._touched or (units and self._voted):
            raise RuntimeError(AVERAGE_FIRST)

        def with_twins() -> None:
            if self.agent.left.is_set():
                raise Left()
            self._averages += units
            average(self._groups.peers, self.world_size // self._unit.size, parameters)

        self.vote_once(updates=True, first=with_twins) if units else with_twins()

    def vote_once(self, updates: bool, first: Callable[[], None] = lambda: None) -> None:
        """Once in a step all ranks say what they have done in it, and none goes on before it has heard that of all."""
        if self._voted or (self._unit.size > 1 and updates is False and not self._finishing):
            return
        begun = self._counted()
        collectives = -1 if self._begun is None or self._begun[1] is None or begun is None else begun - self._begun[1]

        def with_peers() -> Votes:
            if self.agent.left.is_set():
                raise Left()
            first()
            return self._rounds.vote(self._groups.votes, Did(self.done, True, updates, collectives), self._end_asked)

        try:
            votes = self._together(with_peers)
        except Exception:
            self.complain_if_found(self.done)
            raise
        self._voted = True
        self._over, self.stopping = self._over or votes.generation_ends, self.stopping or votes.loop_ends

    def _before_update(self) -> None:
        """What the optimizer reads must be final, and not the ruins of a broken collective."""
        if self.inside and self._unit.size > 1 and not self._voted:
            raise RuntimeError(AVERAGE_FIRST)
        if torch.cuda.is_initialized():
            torch.cuda.current_stream().synchronize()
        if self.agent.left.is_set() and self._unit.size == 1:
            raise Left()
        self._no_update = None
        if self.inside:
            self.vote_once(updates=True)
        self._touched = self.inside

    def begin_step(self) -> None:
        self.inside, self._voted = True, False

    def commit(self, number: int, shown: dict[str, Any]) -> None:
        self._touched = False
        self.done = number + 1
        self._tell_of_no_update()
        self.agent.note(step=self.done, **shown)
        self.agent.pulse()
        if self.agent.reported("first_step") == number:
            self.agent.report()  # the generation trains: the agent's measure of a recovery

    def _tell_of_no_update(self) -> None:
        if self._no_update is None:
            return
        self._no_update += 1
        if self._no_update == NO_UPDATE_TOLD:
            self._no_update = None
            if self.rank == 0:
                _control.notice(NO_UPDATE)

    def stop(self) -> None:
        self._end_asked = True

    def is_fault(self, error: BaseException) -> bool:
        """A peer's; or this worker was told to leave, and any may be what follows from that (not with units, where an order to
        leave breaks nothing but what is done together)."""
        if not isinstance(error, Exception):
            return False
        told = self.agent.left.is_set() and self._unit.size == 1 and not isinstance(error, StepError)
        return told or isinstance(error, Left) or _torch_private.is_peers_fault(error)

    def end_on(self, error: Exception) -> None:
        """An error of the script's own: nobody has to wait for this process, which ends as it would, but without torch's
        second or two of clean-up."""
        self._fails = True
        self._groups.break_all()
        hook = sys.excepthook

        def tell_and_end(*what: Any) -> None:
            hook(*what)
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(1)

        broke_rule = isinstance(error, StepError)
        self.agent.fault(str(error) if broke_rule else f"{type(error).__name__}: {error}", final=broke_rule)
        sys.excepthook = tell_and_end

    # ---- by other threads than the script's

    def _placed(self, place: dict[str, Any]) -> None:
        unit = self._unit.size
        self._rounds.begin_generation(place["rank"] // unit, place["world_size"] // unit)

    def _pause(self, after_step: bool, leaves: bool) -> None:
        """It breaks collectives, never Python code."""
        if after_step:
            self._rounds.asked(leaves)
        else:
            self._groups.break_all()

    def _look(self) -> None:
        if self._unit.size == 1:
            begun, now = self._begun, self._counted()
            in_block = self.inside and not self._voted and begun is not None
            self._rounds.look(Did(begun[0], False, False, now - begun[1]) if in_block and None not in (now, begun[1]) else None)

    def _waits(self) -> bool:
        """For a place, or for the others to be done; or this torch does not count, and nobody can tell."""
        return self._collectives() is None

    def _collectives(self) -> int | None:
        """Step by step, since messages between two ranks are counted too: of two ranks the one in a later step is ahead."""
        begun, now = self._begun, self._counted()
        if begun is None or begun[1] is None or now is None or self._finishing or not self._in_generation:
            return None
        return begun[0] * MOST_COLLECTIVES + (MOST_COLLECTIVES - 1 if self._rounds.voting else now - begun[1])

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
        self._end_asked = True  # the loop ends after the step in which all agree
        self.agent.stop_waiting()
        earlier = self._earlier_handlers[number]
        if callable(earlier) and earlier is not signal.default_int_handler:
            earlier(number, frame)

    def _restore_interrupt(self) -> None:
        """Behind the loop a Ctrl-C is the script's again, as before it. Who sends another signal gives the script the time to
        save."""
        if signal.getsignal(signal.SIGINT) == self._told_to_end:
            signal.signal(signal.SIGINT, self._earlier_handlers[signal.SIGINT])


def _drops_loop(script: types.FrameType | None) -> bool:
    """Whether it drops its loop's iterator on purpose, rather than as an error passes through."""
    return script is not None and dis.opname[script.f_code.co_code[script.f_lasti]] in ("POP_TOP", "POP_ITER")


def _tell_of_collectives_outside(job: ElasticJob) -> None:
    hook = sys.excepthook

    def tell(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        if job.left_alone():
            job.agent.fault(f"{kind.__name__}: {error}")
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

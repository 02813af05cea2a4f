"""The tests' program: an MLP under DDP with the worker kit. Each worker writes a line of JSON per step, with a hash of its
parameters, to $KIT_OUT, and one at its end. Options are in the environment (option() below).

$KIT_FAULTS is a list "NAME:RANK:STEP,…". Each happens once in a job, however often the step is done: a file in $KIT_ONCE
says that it has. forward, reduce (in the all-reduce), update (after opt.step()), begin (before the block) kill the rank;
average kills a rank whose twins are in job.average, raise is an error of the script's own, asleep waits before the
collective, lag waits until the agent says something, and half a second more, before the rank asks for the next step, and torn
adds a collective after the update, in which the rank dies. hold waits in the block for the file "go-STEP" in $KIT_ONCE. exit, quit
(os._exit), break, skip (`continue` in the block), unbegun (before it), twice, and alone (a barrier behind backward) are ranks
that leave their peers, and stop calls job.stop(). Of a generation in place of a step: meet kills a rank whose peers do not know
yet where to reach it, connect one whose peers do, and regroup one that has met them."""

import hashlib
import json
import os
import pathlib
import signal
import sys
import time
import warnings

warnings.filterwarnings("ignore")
ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "worker/kit/python"), str(ROOT / "tests/support")]
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import dtrun
from clock import stalled
from dtrun._store import AgentStore
from sharded import sharded


def option(name, default):
    return type(default)(os.environ.get("KIT_" + name, default))


out = open(os.environ["KIT_OUT"], "a", buffering=1)
faults = [fault.split(":") for fault in option("FAULTS", "").split(",") if fault]


PATIENT_FROM = 15  # steps


def say(event, **more):
    """`fair`: differences are in fair time."""
    now = time.time()
    out.write(json.dumps({"t": now, "fair": now - stalled(), "pid": os.getpid(), "event": event, **more}) + "\n")


def digest(tensors):
    mine = (t.detach().to_local() if hasattr(t, "to_local") else t.detach() for t in tensors)
    return hashlib.sha256(b"".join(bytes(t.contiguous().cpu().numpy().tobytes()) for t in mine)).hexdigest()[:16]


def strikes(name, step):
    """True once, in the rank and step of a fault of this name."""
    for fault in faults:
        if fault == [name, str(job.rank), str(step.number)]:
            try:
                os.close(os.open(os.path.join(os.environ["KIT_ONCE"], "-".join(fault)), os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return False
            return True
    return False


def dies():
    os.kill(os.getpid(), signal.SIGKILL)


torch.set_num_threads(1)
if option("BLIND", 0):  # as a torch whose gloo watches its connections otherwise
    from dtrun import _torch_private
    _torch_private.epolls = set
unit = option("UNIT", 1)
backend = option("BACKEND", "gloo")
job = dtrun.start(backend, unit)
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if backend == "nccl" else torch.device("cpu")
if option("LOAD", 0.0):
    say("loading")
    time.sleep(option("LOAD", 0.0))
torch.manual_seed(1)
generator = torch.Generator().manual_seed(3)
samples = torch.randn(1024, 64, generator=generator), torch.randint(0, 10, (1024,), generator=generator), torch.arange(1024)
data = dtrun.Batches(torch.utils.data.TensorDataset(*samples), global_batch_size=48, num_workers=option("LOADERS", 0))
width = option("WIDTH", 128)
norm = nn.BatchNorm1d(width) if option("NORM", 0) else nn.Identity()
drop = nn.Dropout(0.1) if option("DROP", 0) else nn.Identity()
net = nn.Sequential(nn.Linear(64, width), norm, nn.ReLU(), drop, nn.Linear(width, width), nn.ReLU(),
                    nn.Linear(width, 10)).to(device)
if unit > 1:
    model = sharded(net, by_hand=not option("FSDP", 0))
elif option("BARE", 0):
    model = net
else:
    model = DDP(net, find_unused_parameters=bool(option("FIXED_LAYOUT", 0)))
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
sched = torch.optim.lr_scheduler.LinearLR(opt, total_iters=200)
job.keep(model=model, opt=opt, sched=sched)
start, checkpoint = 0, pathlib.Path(os.environ.get("KIT_ONCE", "")) / "checkpoint"  # every KIT_EVERY steps
if option("EVERY", 0) and checkpoint.exists():
    loaded = torch.load(checkpoint)
    start = loaded["step"]
    for thing, state in zip((model, opt, sched), loaded["states"]):
        thing.load_state_dict(state)
say("loaded", generation=job.generation, start=start)
while start and not checkpoint.with_name("late").exists():  # the others go on
    time.sleep(0.01)


class At:  # a generation, in place of a step
    def __init__(self, job):
        self.number = job.generation


@job.on_regroup
def groups(job):
    if strikes("regroup", At(job)):
        dies()


def tell_peers(store, key, value, tell=AgentStore.set):
    if strikes("meet", At(job)):
        time.sleep(0.2)  # its peers wait for this key by now
        dies()
    tell(store, key, value)


def wait_for_peers(store, key, seconds, wait=AgentStore._wait):
    value = wait(store, key, seconds)
    if strikes("connect", At(job)):
        dies()
    return value


AgentStore.set, AgentStore._wait = tell_peers, wait_for_peers


for step in job.steps(option("STEPS", 100), data, start=start, min_workers=option("MIN", 1)):
    if strikes("begin", step):
        dies()
    if strikes("unbegun", step):
        continue
    with step as (x, y, which):
        x, y = x.to(device), y.to(device)
        if strikes("exit", step):
            sys.exit(0)
        if strikes("quit", step):
            os._exit(0)
        if strikes("skip", step):
            continue
        if strikes("stop", step):
            job.stop()
        if strikes("hold", step):
            say("holds", step=step.number)
            while not checkpoint.with_name(f"go-{step.number}").exists():
                time.sleep(0.01)
        opt.zero_grad()
        if strikes("asleep", step):
            time.sleep(1e6)
        output = model(x)
        if strikes("forward", step):
            dies()
        loss = F.cross_entropy(output, y) * step.weight
        if strikes("reduce", step):
            next(net.parameters()).register_hook(lambda _: dies())  # the last gradient: its peers are in the all-reduce
        loss.backward()
        time.sleep(option("PAUSE", 0.0))
        # A replacement is to come before the end: once it is there, this worker is told to pause.
        while step.number >= PATIENT_FROM and job.world_size < option("WHOLE", 1) and not job.agent.over.wait(0.5):
            job.agent.pulse()
        if strikes("alone", step):
            torch.distributed.barrier()
        if strikes("skew", step):
            time.sleep(0.5)
        if strikes("average", step):
            time.sleep(0.2)
            dies()
        if (unit > 1 or model is net) and not option("FORGETFUL", 0):
            job.average(model.parameters())
        opt.step()
        sched.step()
        if strikes("update", step):
            dies()
        if any(fault[0] == "torn" and fault[2] == str(step.number) for fault in faults):
            once = pathlib.Path(os.environ["KIT_ONCE"])
            (once / f"updated-{job.rank}").touch()
            if strikes("torn", step):
                while len(list(once.glob("updated-*"))) < job.world_size:
                    time.sleep(0.01)
                dies()
            torch.distributed.barrier()  # what must not be: a collective after the update
        if strikes("raise", step):
            raise ValueError("a bug of the script")
        step.log(loss=loss.item())
    if step.committed:
        say("step", step=step.number, rank=job.rank, world=job.world_size, gen=job.generation,
            place=job.rank % unit, hash=digest(model.parameters()), samples=which.tolist())
    if option("EVERY", 0) and step.committed and job.rank == 0 and job.done % option("EVERY", 0) == 0:
        torch.save({"step": job.done, "states": [thing.state_dict() for thing in (model, opt, sched)]}, checkpoint.with_name("new"))
        checkpoint.with_name("new").replace(checkpoint)
    if strikes("break", step):
        break
    if strikes("twice", step):
        with step:
            pass
    if strikes("lag", step):
        say("lagging")
        job.agent.over.wait()
        time.sleep(0.5)

say("end", rank=job.rank, place=job.rank % unit, done=job.done, params=digest(model.parameters()), lr=sched.get_last_lr()[0],
    buffers=digest(net.buffers()), moments=digest(state["exp_avg"] for state in opt.state.values()),
    stopping=job.stopping, fds=len(os.listdir("/proc/self/fd")), threads=len(os.listdir("/proc/self/task")))
if option("TOGETHER", 0):  # nobody is kept from its end until another one has saved
    while pathlib.Path(os.environ["KIT_OUT"]).read_text().count('"event": "end"') < job.world_size:
        time.sleep(0.01)
time.sleep(option("SAVE", 0.0))
say("saved")

"""A worker's end of the control socket to its dtrun agent (proto/control.proto), as lines of JSON. One thread reads, one
reports; any thread may send. No torch here."""

from __future__ import annotations

import atexit
import base64
import json
import os
import socket
import sys
import threading
import time
from typing import Any, Callable, Iterable

PROTOCOL = 6  # kControlProtocol of proto/core/contract.h
EXIT_STOPPED = 75  # the agent's word for: ended early because it was told to
ANSWER_S = 10.0  # an agent answers at once; this is for a machine that swaps
REPORT_EVERY_S = 0.4

SHOWN = ("phase", "step", "total_steps", "epoch", "loss", "learning_rate", "samples_per_second", "accuracy", "first_step")


def check_shown(values: Iterable[str]) -> None:
    """Raises TypeError for a name that no report of progress has."""
    unknown = [name for name in values if name not in SHOWN]
    if unknown:
        raise TypeError(f"dtrun shows {', '.join(SHOWN[1:-1])}; it has no use for {', '.join(unknown)}")


class Left(Exception):
    """The generation is over: whoever waits for something of it waits in vain."""


class Agent:
    """The connection. A fork of this process inherits the socket, and closes its copy."""

    def __init__(self, fd: int) -> None:
        os.set_inheritable(fd, False)
        self._socket = socket.socket(fileno=fd)
        self._changed = threading.Condition()  # guards the next six
        self._replies: dict[int, dict[str, Any]] = {}
        self._requests = 0
        self._hello_ack: dict[str, Any] | None = None
        self._start: dict[str, Any] | None = None
        self._end: dict[str, Any] | None = None  # there are no further generations for this worker
        self._placed = False  # orders count only between a start and the next ready
        self._sending = threading.Lock()
        self._pulse = 1
        self._progress: dict[str, Any] = {}
        self._trains_since: float | None = None  # in this generation
        self._said_hello = False
        self._closing = False
        self.outlives = False  # the agent and this worker have agreed on it
        self.unit_file = ""    # by which the processes of a unit find each other
        # Told to leave the generation at once; set before on_pause is called.
        self.left = threading.Event()
        # The same, or told to leave it after a step, or to end (a signal).
        self.over = threading.Event()
        # Called by the thread that reads.
        self.on_start: Callable[[dict[str, Any]], None] = lambda place: None
        self.on_pause: Callable[[bool, bool], None] = lambda after_step, leaves: None
        # By the thread that reports. Whether this worker waits for something else than a collective, and so does not hang; and
        # how many collectives it has begun, by which the agents find out who waits for whom (FromWorker.collectives).
        self.waits: Callable[[], bool] = lambda: False
        self.collectives: Callable[[], int | None] = lambda: None
        self.look: Callable[[], None] = lambda: None  # at where this worker stands
        for name, body in (("dtrun-control", self._read), ("dtrun-report", self._report)):
            threading.Thread(target=body, daemon=True, name=name).start()

    # ---- what is said

    def hello(self, outlives: bool, unit: int = 1) -> bool:
        """Says what this worker is: one of `unit` neighbours that hold a state together. True if the agent will keep it over the death of peers."""
        self._said_hello = True
        try:
            self._send(hello={"protocol": PROTOCOL, "pid": os.getpid(), "outlives": outlives, "unit": unit})
        except OSError:
            return False
        with self._changed:
            self._changed.wait_for(lambda: self._hello_ack is not None, ANSWER_S)
            ack = self._hello_ack or {}
        if ack.get("protocol", PROTOCOL) != PROTOCOL:
            notice(f"the agent speaks version {ack['protocol']} of the control protocol, this package {PROTOCOL}: it is a "
                    "plain loop. Install the package that came with dtrun")
            return False
        self.outlives = outlives and bool(ack.get("outlives"))
        self.unit_file = ack.get("unit_file", "")
        return self.outlives

    def ready(self, step: int | None = None, torn: bool = False,
              error: str = "") -> tuple[dict[str, Any], dict[str, Any] | None]:
        """Says that this worker waits for a place in a generation, and waits for it. `step`: steps done by the state that it
        holds. The second of the two in place of a first one: there is none for it any more."""
        self._progress.pop("first_step", None)
        with self._changed:
            self._placed = False
        held = {} if step is None else {"step": step}
        self._send(ready={**held, "torn": torn, "error": error})
        with self._changed:
            self._changed.wait_for(lambda: self._start is not None or self._end is not None)
            place, self._start = self._start, None
            return place or {}, self._end

    def fault(self, message: str, final: bool = False) -> None:
        """This worker ends on an error of its own: nobody need wait for its end. `final`: no restart cures it."""
        try:
            self._send(fault={"exit_code": 1, "message": message[:2000], "final": final})
        except OSError:
            pass

    def stop_waiting(self) -> None:
        """For a signal handler, which may have interrupted the holder of the lock."""
        threading.Thread(target=self.over.set, daemon=True).start()

    def pulse(self) -> None:
        self._pulse += 1

    def note(self, **values: Any) -> None:
        """Goes with the next report."""
        check_shown(values)
        self._progress.update(values)

    def report(self, **values: Any) -> None:
        """Progress: said now, and then at least once a second as long as the process lives."""
        self.note(**values)
        if "first_step" in values or self._trains_since is None:
            self._trains_since = time.monotonic()
        if not self._said_hello:
            self.hello(outlives=False)
        try:
            self._send_progress()
        except OSError:
            pass  # the reader knows what follows from that

    def reported(self, name: str) -> Any:
        return self._progress.get(name)

    # ---- the store of this generation

    def set(self, key: str, value: bytes) -> None:
        """Raises Left when the generation ends; TimeoutError if the store does not answer."""
        self._request(key, 0.0, op="SET", value=base64.b64encode(value).decode())

    def get(self, key: str, timeout: float) -> bytes:
        """Waits `timeout` seconds for the key. Raises as set()."""
        return base64.b64decode(self._request(key, timeout, op="GET").get("value", ""))

    def _request(self, key: str, timeout: float, **more: Any) -> dict[str, Any]:
        with self._changed:
            self._requests += 1
            number = self._requests
        self._send(kv={"id": number, "key": key, "timeout_ms": int(timeout * 1000), **more})
        with self._changed:
            self._changed.wait_for(lambda: number in self._replies or self.left.is_set(), timeout + ANSWER_S)
            reply = self._replies.pop(number, None)
        if reply is not None and reply.get("ok"):
            return reply
        if self.left.is_set():
            raise Left()
        raise TimeoutError(f"the store about '{key}': {(reply or {}).get('error', 'no answer')}")

    # ---- the threads

    def _send(self, **message: Any) -> None:
        line = json.dumps(message, allow_nan=False).encode() + b"\n"
        with self._sending:
            self._socket.sendall(line)

    def _send_progress(self) -> None:
        finite = {name: value for name, value in self._progress.items() if not isinstance(value, float) or value - value == 0}
        begun = self.collectives()
        if self._trains_since is not None:  # the generation's time before was spent on loading
            finite["times"] = {"training": time.monotonic() - self._trains_since}
        self._send(progress=finite, pulse=self._pulse, **({} if begun is None else {"collectives": begun}))

    def _report(self) -> None:
        while True:
            time.sleep(REPORT_EVERY_S)
            if not self._progress:
                continue
            try:
                if self.waits():
                    self._pulse += 1
                self.look()
                self._send_progress()
            except OSError:
                return

    def _read(self) -> None:
        with self._socket.makefile("rb") as lines:
            try:
                for line in lines:
                    self._take(json.loads(line))
            except (OSError, ValueError):
                pass
        if self.outlives and not self._closing:
            os._exit(EXIT_STOPPED)  # nobody watches this worker any more, and its peers are being stopped too

    def _take(self, message: dict[str, Any]) -> None:
        """What a newer agent says beside this is skipped."""
        with self._changed:
            if "hello_ack" in message:
                self._hello_ack = message["hello_ack"]
            if "kv" in message:
                self._replies[int(message["kv"]["id"])] = message["kv"]  # JSON's 64-bit numbers are strings
            if "start" in message:
                self._start, self._placed = message["start"], True
                self._replies.clear()
                self.on_start(message["start"])
                self.left.clear()
                self.over.clear()
            if "end" in message:
                self._end = message["end"]
            self._changed.notify_all()
        if "stop" in message:
            self._told_to_stop(message["stop"])

    def _told_to_stop(self, stop: dict[str, Any]) -> None:
        kind = stop["kind"]
        if kind == "ABORT":
            os._exit(EXIT_STOPPED)
        with self._changed:
            if not self._placed:
                return  # an order that came late would stop the next generation
            self.over.set()
            if kind == "PAUSE":
                self.left.set()
            self._changed.notify_all()
        self.on_pause(kind == "PAUSE_AFTER_STEP", bool(stop.get("leaves")))

    def close(self) -> None:
        """In a child of this process, which has none of its threads."""
        self._socket.close()

    def end(self) -> None:
        """At the process' end, from which on it gives no signs of life: torch's clean-up may take seconds."""
        self._closing = True
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


_agent: Agent | None = None


def connect() -> Agent | None:
    """This process' agent; None without one, or if that has given no control socket. The variable is taken out of the
    environment: a program that this one starts does not inherit the descriptor."""
    global _agent
    fd = os.environ.pop("DTRUN_CONTROL_FD", None)
    if fd is not None:
        _agent = Agent(int(fd))
        os.register_at_fork(after_in_child=_forget)
        atexit.register(_agent.end)
    return _agent


def _forget() -> None:
    global _agent
    if _agent is not None:
        _agent.close()
    _agent = None


def notice(text: str) -> None:
    print("dtrun: " + text, file=sys.stderr, flush=True)

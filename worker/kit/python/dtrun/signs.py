"""Signs of life for scripts with a loop of their own. Neither torch nor the elastic part is needed."""

from __future__ import annotations

import os
from typing import Any

from . import _control


def heartbeat() -> None:
    """Says that this worker gets on. Steps of a job say it by themselves; for what takes long within one of them, or
    outside."""
    agent = _control.connect()
    if agent is not None:
        agent.pulse()
    elif "DTRUN_HEARTBEAT_FILE" in os.environ:
        os.utime(os.environ["DTRUN_HEARTBEAT_FILE"])


def progress(step: int, total_steps: int = 0, **values: Any) -> None:
    """What dtrun's terminal, `dtrun status` and hang detection see. `values`: loss, epoch, learning_rate, accuracy (0..1),
    samples_per_second. The first rank of each node is shown. Without an agent: only a heartbeat."""
    agent = _control.connect()
    if agent is not None:
        agent.report(phase="TRAINING", step=step, total_steps=total_steps, **values)
    heartbeat()


def note(**values: Any) -> None:
    """The same at the end of a step: it costs no message, the next report has it."""
    agent = _control.connect()
    if agent is not None:
        agent.note(**values)
    heartbeat()


def at_rest() -> None:
    """The loop is over. What a script does then, such as to save, takes as long as it takes."""
    agent = _control.connect()
    if agent is not None:
        agent.waits = lambda: True

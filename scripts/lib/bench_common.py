"""What the parts of scripts/bench share: where things are, a measurement that may fail, a line of the table."""

import contextlib
import pathlib
import statistics
import subprocess
import sys
import textwrap
import traceback

ROOT = pathlib.Path(__file__).resolve().parents[2]
DTRUN = ROOT / "build/release/bin/dtrun"
NO_TORCH = "no Python here has PyTorch with gloo (scripts/setup --bench, or --python)"

PROBE_LIMIT_S = 120  # the first import of PyTorch from a cold disk
REASON_WIDTH = 100


class BenchError(Exception):
    """Something that was to be measured did not run: why in a few words, and what it printed."""

    def __init__(self, why, output=""):
        super().__init__(why)
        self.output = output


def note(text):
    print(f"dtrun: bench: {text}", file=sys.stderr, flush=True)


def error(why, output=""):
    """What stands in the JSON where a measurement failed."""
    note(f"failed: {why}")
    if output:
        print(output.rstrip(), file=sys.stderr, flush=True)
    return {"error": why, "output": output}


def failed(result):
    return isinstance(result, dict) and "error" in result


def any_failed(result):
    """Whether a measurement anywhere below failed."""
    inner = result.values() if isinstance(result, dict) else result if isinstance(result, list) else ()
    return failed(result) or any(map(any_failed, inner))


def attempt(what, measure, *arguments):
    """What `measure` returns, or an error where it raises: one failure does not cost the other measurements.
    Ctrl-C is no failure and passes through."""
    note(what)
    try:
        return measure(*arguments)
    except BenchError as failure:
        return error(str(failure), failure.output)
    except Exception as failure:
        return error(f"{type(failure).__name__}: {failure}", traceback.format_exc())


def python_with_torch(asked_for):
    """The first of the interpreters that has PyTorch; None if there is none."""
    for python in [asked_for] if asked_for else ["/usr/bin/python3", sys.executable]:
        probe = [python, "-c", "import torch.distributed as d; raise SystemExit(not d.is_gloo_available())"]
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            if subprocess.run(probe, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              timeout=PROBE_LIMIT_S).returncode == 0:
                return python
    return None


def summary(runs):
    return {"median": statistics.median(runs), "min": min(runs), "max": max(runs), "runs": runs}


def row(what, value, target="", met=None):
    verdict = "" if met is None else ("met" if met else "MISSED")
    return f"  {what:<52} {value:>16}   {target:<12} {verdict}".rstrip()


def failed_row(what, result):
    return f"  {what:<52} failed: {textwrap.shorten(result['error'], REASON_WIDTH, placeholder=' …')}"


def rows_of(result, what, rows):
    """The rows of one measurement; where it has no number, one that says why. None is what Ctrl-C came before."""
    if result is None:
        yield row(what, "not measured")
    elif failed(result):
        yield failed_row(what, result)
    else:
        yield from rows(result)

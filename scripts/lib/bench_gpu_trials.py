"""How the parts of scripts/bench_gpu run the program gpu_trials (tests/bench/trials.h): jobs in, lines of JSON out."""

import json

from bench_common import BenchError
from bench_gpu_checks import Skip

PROGRAM = "tests/gpu_trials"
LIMIT_S = 300
END_S = 15  # what is begun before the time is up ends within that


def write_jobs(bench, jobs):
    """Files of {name: (its micro batch size for --batches or None, config)}, in that order."""
    folder, files = bench.folder(), []
    for number, (_, config) in enumerate(jobs.values()):
        files.append(folder / f"{number}.json")
        files[-1].write_text(json.dumps({**config, "output_dir": "run"}))
    return files


class Ending:
    """What the program said, and why it did not end well (None if it did)."""

    def __init__(self, out, failure):
        self.lines, self.failure = [], failure
        for line in out.splitlines():
            if line.startswith("{"):
                try:
                    self.lines.append(json.loads(line))
                except ValueError:  # it was ended in the middle of it
                    pass


def run_trials(bench, what, files, options, jobs):
    """The lines, also of a program that failed later. What it had no time for is left out."""
    try:
        limit_s = bench.limit(LIMIT_S)
        seconds = max(1, limit_s - END_S) if limit_s > 2 * END_S else limit_s / 2
        argv = [PROGRAM, what, "--seconds", f"{seconds:.0f}", *map(str, options), *map(str, files)]
        ending = Ending(bench.program(argv, limit_s), None)
    except (BenchError, Skip) as failure:
        ending = Ending(getattr(failure, "output", ""), failure)
    for line in ending.lines:
        for file in line.get("left_out", []):
            bench.leave_out(list(jobs.values())[int(file.removesuffix(".json"))][0])
    return ending


def lines_of(ending, name, jobs):
    file = f"{list(jobs).index(name)}.json"
    return [line for line in ending.lines if line.get("job") == file]


def whole_or_fail(bench, ending):
    """A row of its own for a program that did not end well, or had nothing to say."""
    def end():
        if ending.failure is not None:
            raise ending.failure
        if not ending.lines:
            raise BenchError("the program said nothing")
        left = next((line["left_out"] for line in ending.lines if "left_out" in line), [])
        return "all" if not left else f"{len(left)} of the jobs were left out for time"

    bench.check("what was tried", end)

"""scripts/bench_gpu --compare: what differs between two runs."""

import json

LEAST = 0.02  # of a number: less differs from run to run


def compare(old_file, new_file):
    """Prints each number that differs by more than LEAST, each fact and status that differs, and what only one run has."""
    old, new = ({(row["part"], row["what"]): row for row in json.loads(file.read_text())["rows"]}
                for file in (old_file, new_file))
    shown = 0
    for key in {**old, **new}:
        lines = list(differences(old.get(key), new.get(key)))
        shown += len(lines)
        for line in lines:
            print(f"{key[0]}: {key[1]}: {line}")
    print(f"{shown} differences" if shown else "no difference")
    return 0


def differences(old, new):
    if old is None or new is None:
        yield "only in the " + ("new" if old is None else "old")
        return
    if old["status"] != new["status"]:
        yield f"{old['status']} → {new['status']}: {new['text']}"
    for name in {**old["facts"], **new["facts"]}:
        before, after = old["facts"].get(name), new["facts"].get(name)
        if before != after:
            yield f"{name}: {str(before)[:60]} → {str(after)[:60]}"
    for name, before in old["numbers"].items():
        after = new["numbers"].get(name)
        pair = isinstance(before, (int, float)) and isinstance(after, (int, float))
        if pair and abs(after - before) > LEAST * abs(before):
            yield f"{name}: {before:.6g} → {after:.6g}" + (f" ({after / before:.3f} ×)" if before else "")

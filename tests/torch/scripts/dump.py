"""Writes what it was started with to FOLDER/RANK.json: dump.py FOLDER [anything]."""
import json
import os
import sys

with open(os.path.join(sys.argv[1], os.environ["RANK"] + ".json"), "w") as file:
    json.dump({"environ": dict(os.environ), "arguments": sys.argv[2:], "executable": sys.executable,
               "options": [sys.flags.unbuffered if hasattr(sys.flags, "unbuffered") else sys.orig_argv[1]],
               "directory": os.getcwd(), "path": sys.path}, file)

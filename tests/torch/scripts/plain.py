"""Imports nothing but the standard library: what any program finds when it is launched."""

import os
import sys

NAMES = ("RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE ROLE_RANK ROLE_WORLD_SIZE ROLE_NAME "
         "TORCHELASTIC_RESTART_COUNT TORCHELASTIC_MAX_RESTARTS TORCHELASTIC_USE_AGENT_STORE")

print(" ".join(f"{name}={os.environ.get(name)}" for name in NAMES.split()), sys.argv[1:], flush=True)
if "--fail" in sys.argv and os.environ["RANK"] == "1":
    sys.exit(17)

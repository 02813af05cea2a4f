"""Imports nothing but the standard library: what any program finds when it is launched."""

import os
import sys

# Without TORCHELASTIC_USE_AGENT_STORE: torchrun 1.13 says False, as dtrun does, newer ones keep the store themselves.
NAMES = ("RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE ROLE_RANK ROLE_WORLD_SIZE ROLE_NAME "
         "TORCHELASTIC_RESTART_COUNT TORCHELASTIC_MAX_RESTARTS")

# One write: torchrun's workers share its stdout, and print() writes the newline apart.
sys.stdout.write(" ".join(f"{name}={os.environ.get(name)}" for name in NAMES.split()) + f" {sys.argv[1:]}\n")
if "--fail" in sys.argv and os.environ["RANK"] == "1":
    sys.exit(17)

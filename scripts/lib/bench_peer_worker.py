"""A worker that notices at once when its peer dies, for scripts/bench: rank 0 listens, rank 1 connects, each says that
it is up, and the one that loses its peer ends with 1. The standard library alone: what is measured is the launcher.

All workers of the run are on this host and meet under the run's name. MASTER_PORT is not for them: there the
agents of a current torchrun keep their own store, for the workers' PyTorch to share."""

import os
import socket
import sys
import time

CONNECT_SECONDS = 30


def peer_of(rank):
    """A connection to the other worker."""
    name = "\0dtrun-bench-" + os.environ["TORCHELASTIC_RUN_ID"]  # no file: it goes with the socket
    if rank != 0:
        return connected(name)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(name)
        server.listen()
        return server.accept()[0]


def connected(name):
    deadline = time.monotonic() + CONNECT_SECONDS
    while True:
        peer = socket.socket(socket.AF_UNIX)
        try:
            peer.connect(name)
            return peer
        except OSError:
            peer.close()
            if time.monotonic() > deadline:
                raise
            time.sleep(0.005)


def main():
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    peer = peer_of(rank) if world_size == 2 else None
    print(f"up rank={rank} world={world_size}", flush=True)
    if peer is None:
        time.sleep(600)
    peer.recv(1)
    sys.exit(1)


if __name__ == "__main__":
    main()

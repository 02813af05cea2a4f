"""A worker that notices at once when a peer dies, for scripts/bench: rank 0 listens on MASTER_PORT, the others connect,
each says that it is up, and whoever loses a peer ends with 1. The standard library alone: what is measured is the launcher."""

import os
import socket
import sys
import time

CONNECT_SECONDS = 30


def connect(address):
    deadline = time.monotonic() + CONNECT_SECONDS
    while True:
        try:
            return socket.create_connection(address)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.005)


def main():
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    if rank == 0:
        with socket.create_server(address) as server:
            peers = [server.accept()[0] for _ in range(world_size - 1)]
    else:
        peers = [connect(address)]
    print(f"up rank={rank} world={world_size}", flush=True)
    if not peers:
        time.sleep(600)
    peers[0].recv(1)
    sys.exit(1)


if __name__ == "__main__":
    main()

"""Ports and addresses for tests that must know one before anything listens there.

A port that is chosen free, closed and used later may meanwhile go to another test process, or to any outgoing
connection. So a process gives out numbers of a slice of its own, below the range of which the system takes ports for
connections, each number once, each tried by binding. Where nobody shall ever listen, a bound socket keeps others away.
"""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

HOST = "127.0.0.1"
#: Linux gives outgoing connections 32768 and up.
FIRST, END, SLICE = 20_000, 32_000, 1_000
_SLICES = (END - FIRST) // SLICE


def _find_slice() -> int:
    """Number of this process's slice: of its xdist worker, else by its process id."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    return int(worker.removeprefix("gw")) if worker.startswith("gw") else os.getpid()


# A start of its own for each process: two runs on one machine, whose workers have the same names, seldom meet.
_numbers = count(os.getpid() * 37)


def take_port(host: str = HOST, *, run: int = 1) -> int:
    """The first of `run` consecutive ports that are free now and that this process gives out once."""
    base = FIRST + _find_slice() % _SLICES * SLICE
    for _ in range(SLICE):
        start = next(_numbers) % SLICE
        for _ in range(run - 1):
            next(_numbers)
        if start + run <= SLICE and all(_is_free(host, base + start + place) for place in range(run)):
            return base + start
    raise OSError(f"no free port from {base} on")


def take_ports(number: int, host: str = HOST) -> list[int]:
    """So many ports."""
    return [take_port(host) for _ in range(number)]


@contextmanager
def closed_port() -> Iterator[int]:
    """A port that refuses connections as long as the context lasts: it is bound, and nobody listens."""
    with socket.socket() as bound:
        bound.bind((HOST, 0))
        yield bound.getsockname()[1]


def _is_free(host: str, port: int) -> bool:
    # Without SO_REUSEADDR a port whose connections still linger counts as taken; servers here set it.
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True

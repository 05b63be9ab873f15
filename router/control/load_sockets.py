"""Listens to the load sockets of workers that push their load (SGLang), one subscription a rank.

One task for all: what is read is handed on at once with the rank whose socket it came from. A socket that breaks is
ZeroMQ's to mend; silence shows as age, and the worker is asked instead.
Source: SGLang `--load-publish-endpoint` (sgl-project/sglang pull request 34608).
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping

import zmq
import zmq.asyncio

from wire.ids import Target, WorkerId
from wire.load import MAX_STAT_BYTES, LoadReport, decode_load_stat
from wire.malformed import Malformed

_log = logging.getLogger("dovecote.control")
#: Messages that wait at most; only the last one matters.
_WAITING = 8


class LoadSockets:
    """Subscriptions by rank. Belongs to the event loop that opens them."""

    def __init__(self, report: Callable[[WorkerId, LoadReport], None]) -> None:
        self._report = report
        self._context: zmq.asyncio.Context | None = None
        self._followed: dict[Target, tuple[str, asyncio.Task[None]]] = {}

    def follow(self, worker: WorkerId, endpoints: Mapping[int, str], topic: str) -> None:
        """Listen to a worker's ranks at these addresses, and to no others of it."""
        for target in [target for target in self._followed if target.worker == worker]:
            if endpoints.get(target.dp_rank) != self._followed[target][0]:
                self._followed.pop(target)[1].cancel()
        for dp_rank, endpoint in endpoints.items():
            target = Target(worker, dp_rank)
            if target not in self._followed:
                task = asyncio.get_running_loop().create_task(self._listen(target, endpoint, topic))
                self._followed[target] = (endpoint, task)

    def leave(self, worker: WorkerId) -> None:
        """Stop listening to a worker."""
        self.follow(worker, {}, "")

    async def stop(self) -> None:
        """Close every socket."""
        tasks = [task for _, task in self._followed.values()]
        self._followed.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._context is not None:
            self._context.destroy(linger=0)

    async def _listen(self, target: Target, endpoint: str, topic: str) -> None:
        if self._context is None:
            self._context = zmq.asyncio.Context()
        with self._context.socket(zmq.SUB) as socket:
            socket.setsockopt(zmq.LINGER, 0)
            socket.setsockopt(zmq.RCVHWM, _WAITING)
            socket.setsockopt(zmq.MAXMSGSIZE, MAX_STAT_BYTES)
            with contextlib.suppress(zmq.ZMQError):
                socket.connect(endpoint)
                socket.subscribe(topic)
                while True:
                    told = decode_load_stat(await socket.recv_multipart(), dp_rank=target.dp_rank)
                    if not isinstance(told, Malformed):
                        self._report(target.worker, told)
        _log.warning("load_socket_failed worker=%s dp_rank=%d", target.worker, target.dp_rank)

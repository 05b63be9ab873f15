"""Runs the application on a socket: says where it listens, ends within two seconds when told to.

On SIGTERM or SIGINT no new request is taken, streams get a moment to finish, the rest is ended with
an error, and the process exits with 0.
"""

import asyncio
import logging
import math
import os
import socket
import sys
import threading
from types import FrameType

import uvicorn

from engine_shim.engine.publish.config import bracketed
from engine_shim.engine.server.app import build_app
from engine_shim.engine.server.service import EngineService

#: How long running requests may go on after a signal.
GRACE_S = 0.6
_BACKLOG = 2_048


def listen(host: str, port: int) -> socket.socket:
    """A bound socket; port 0 takes any free one.

    Raises:
        OSError: The address cannot be bound.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        # What failed at the socket has the address in its words; a name that nobody knows has no number of the system.
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or error
        raise OSError(f"cannot listen on {host}:{port}: {reason}") from error


def url_of(listener: socket.socket) -> str:
    """Where clients reach a bound socket."""
    host, port = listener.getsockname()[:2]
    return f"http://{bracketed(host)}:{port}"


class EngineProcess(uvicorn.Server):
    """Serves one service until a signal comes or `should_exit` is set."""

    def __init__(self, service: EngineService, listener: socket.socket, *, log_level: str = "warning") -> None:
        config = uvicorn.Config(
            build_app(service),
            lifespan="on",
            ws="none",
            access_log=False,
            log_config=None,
            log_level=log_level,
            server_header=False,
            timeout_keep_alive=60,
            timeout_graceful_shutdown=math.ceil(GRACE_S),
        )
        super().__init__(config)
        self._service = service
        self._listener = listener

    def serve_until_told(self) -> None:
        """Block until the end. As a process of its own, end it then and there.

        Everything is closed by then; a step that will not end is left behind, and so is the second that
        tearing down an interpreter with torch takes.
        """
        self.run(sockets=[self._listener])
        if threading.current_thread() is threading.main_thread():
            logging.shutdown()
            sys.stdout.flush()
            os._exit(0)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002  (uvicorn's signature)
        """End in good order; a second signal ends at once."""
        self.force_exit = self.should_exit
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then say where; whoever waits for the line may send requests."""
        await super().startup(sockets)
        print(f"listening on {url_of(self._listener)}", flush=True)  # noqa: T201  (the command's one line of output)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let running requests finish for a moment, then end them."""
        self._service.hub.drain()
        ending = asyncio.get_running_loop().call_later(GRACE_S, self._service.hub.fail_all)
        try:
            await super().shutdown(sockets)
        finally:
            ending.cancel()

"""Runs a router as a process: one socket, one event loop, one line on stdout that says where.

The socket is bound before anything is made, so that a taken port is said at once, and announced only when every
worker was probed once and requests are taken.
"""

import gc
import logging
import socket
import sys

import uvicorn

from router.app import Router
from router.collector import IdleCollector, PauseLog, keep_for_good, leave_oldest_alone
from router.config import FleetConfig

#: How long running requests may take to end after a signal.
GRACE_S = 30
#: Connections that may wait to be accepted.
BACKLOG = 2_048
#: Longest that a thread keeps the interpreter from the event loop: long prompts are rendered in threads.
SWITCH_INTERVAL_S = 0.0005
LOG_FORMAT = "%(asctime)s level=%(levelname)s logger=%(name)s %(message)s"


class _AnnouncingServer(uvicorn.Server):
    """Says where it listens once it does."""

    def __init__(self, config: uvicorn.Config, address: str, collector: IdleCollector) -> None:
        super().__init__(config)
        self._address = address
        self._collector = collector

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """See uvicorn."""
        await super().startup(sockets)
        if self.started:
            keep_for_good()
            leave_oldest_alone()
            self._collector.start()
            sys.stdout.write(f"listening on {self._address}\n")
            sys.stdout.flush()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """See uvicorn."""
        await self._collector.stop()
        await super().shutdown(sockets)


def serve_router(config: FleetConfig, log_level: str) -> None:
    """Serve until SIGINT or SIGTERM.

    Raises:
        SystemExit: The address cannot be bound, or the log level is none.
    """
    level = logging.getLevelNamesMapping().get(log_level.upper())
    if level is None:
        sys.exit(f"error: log level {log_level!r}; valid: debug, info, warning, error")
    logging.basicConfig(level=level, format=LOG_FORMAT, stream=sys.stderr)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    listener = bind(config.listen.host, config.listen.port)
    host, port = listener.getsockname()[:2]
    address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    router, pauses = Router(config), PauseLog()
    gc.callbacks.append(pauses)
    router.metrics.watch_collector(pauses)
    server = _AnnouncingServer(uvicorn_config(router, log_level), address, IdleCollector(router.count_running))
    server.run(sockets=[listener])


def bind(host: str, port: int) -> socket.socket:
    """A listening socket.

    Raises:
        SystemExit: The address is taken or not of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        sys.exit(f"error: cannot listen on {host}:{port}: {error.strerror or error}")
    listener.listen(BACKLOG)
    return listener


def uvicorn_config(router: Router, log_level: str) -> uvicorn.Config:
    """How the router is served."""
    return uvicorn.Config(
        router,
        http="httptools",
        lifespan="on",
        access_log=False,
        log_config=None,
        log_level=log_level,
        server_header=False,
        date_header=False,
        ws="none",
        timeout_graceful_shutdown=GRACE_S,
        backlog=BACKLOG,
    )

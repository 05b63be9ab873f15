"""Runs a router as a process: one socket, one event loop, one line on stdout that says where.

The socket is bound before anything is made, so that a taken port is said at once, and announced only when every
worker was probed once and requests are taken.
"""

import asyncio
import gc
import logging
import math
import signal
import socket
import ssl
import sys
import time
from types import FrameType

import uvicorn

from router.app import Router
from router.collector import IdleCollector, PauseLog, keep_for_good, leave_oldest_alone
from router.config.access import is_loopback
from router.config.fleet import FleetConfig
from router.config.watching import LogFormat
from router.errors import ConfigError
from router.logs import set_up_logging
from router.open_files import reserve_files
from router.proxy.call import SLOW_CLIENT_S
from router.proxy.door import make_door_class
from router.tls import CertificateWatch, ServerCertificate

_log = logging.getLogger("dovecote.server")
#: Connections that may wait to be accepted.
BACKLOG = 2_048
#: Longest that a thread keeps the interpreter from the event loop: long prompts are rendered in threads.
SWITCH_INTERVAL_S = 0.0005


class _AnnouncingServer(uvicorn.Server):
    """Says where it listens once it does."""

    def __init__(
        self,
        config: uvicorn.Config,
        addresses: list[str],
        collector: IdleCollector,
        certificates: CertificateWatch | None,
        router: Router,
    ) -> None:
        super().__init__(config)
        self._router = router
        #: When it stops listening; None before it was told to end.
        self._ends_at_s: float | None = None
        self._addresses = addresses
        self._collector = collector
        self._certificates = certificates

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """See uvicorn."""
        await super().startup(sockets)
        # Told to end meanwhile, what was started is stopped in order, and nothing is announced.
        if self.started and not self.should_exit:
            keep_for_good()
            leave_oldest_alone()
            self._collector.start()
            if self._certificates is not None:
                self._certificates.start()
            for place, address in enumerate(self._addresses):
                sys.stdout.write(f"{'admin' if place else 'listening'} on {address}\n")
            sys.stdout.flush()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """SIGTERM takes the router out of its balancers first; a second one, and SIGINT, end it now."""
        if sig == signal.SIGTERM and self.started and self._ends_at_s is None:
            wait_s = self._router.readiness.leave(self._router.config.shutdown.wait_s)
            self._ends_at_s = time.monotonic() + wait_s
            if wait_s:
                self._captured_signals.append(sig)
                return
        super().handle_exit(sig, frame)

    async def on_tick(self, counter: int) -> bool:
        """See uvicorn: asked ten times a second whether to end."""
        is_over = self._ends_at_s is not None and time.monotonic() >= self._ends_at_s
        return await super().on_tick(counter) or is_over

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """See uvicorn."""
        if self._certificates is not None:
            await self._certificates.stop()
        await self._collector.stop()
        # Who is cut off is told so; what uvicorn itself cuts off, a little later, is not.
        asyncio.get_running_loop().call_later(self._router.config.shutdown.grace_s, self._router.end_running)
        await super().shutdown(sockets)


def serve_router(config: FleetConfig, log_level: str) -> None:
    """Serve until SIGINT or SIGTERM.

    Raises:
        SystemExit: An address cannot be bound, a file of the configuration not be used, or the log level is none.
    """
    signal.signal(signal.SIGTERM, _end_early)
    level = logging.getLevelNamesMapping().get(log_level.upper())
    if level is None:
        sys.exit(f"error: log level {log_level!r}; valid: debug, info, warning, error")
    set_up_logging(level, as_json=config.logs.format is LogFormat.JSON)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    sockets = [bind(config.listen.host, config.listen.port)]
    if config.listen.admin_port is not None:
        sockets.append(bind(config.listen.admin_host, config.listen.admin_port))
    hosts = _find_hosts(config)
    if not config.access.has_keys and not all(map(is_loopback, hosts)):
        _log.warning("open_to_all hosts=%s effect='whoever reaches these may use and change everything'", hosts)
    try:
        reserve_files(config.limits.streams)
        router = Router(config)
        certificate = None if config.listen.tls is None else ServerCertificate(config.listen.tls)
    except ConfigError as error:
        sys.exit(f"error: {error.message}")
    if len(sockets) > 1:
        router.guard.admin_port = sockets[1].getsockname()[1]
    pauses = PauseLog()
    gc.callbacks.append(pauses)
    router.metrics.watch_collector(pauses)
    server = _AnnouncingServer(
        uvicorn_config(router, log_level, None if certificate is None else certificate.context),
        [name_address(listener, is_tls=certificate is not None) for listener in sockets],
        IdleCollector(router.count_running),
        None if certificate is None else CertificateWatch(certificate),
        router,
    )
    # uvicorn handles signals from here on, and ends by the one that came.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    server.run(sockets=sockets)


def _end_early(_signal: int, _frame: FrameType | None) -> None:
    """SIGTERM before the server handles it: nothing was served yet."""
    sys.stderr.write("ended by SIGTERM before it served\n")
    raise SystemExit(128 + signal.SIGTERM)


def _find_hosts(config: FleetConfig) -> tuple[str, ...]:
    listen = config.listen
    return (listen.host,) if listen.admin_port is None else (listen.host, listen.admin_host)


def name_address(listener: socket.socket, *, is_tls: bool) -> str:
    """URL of a listening socket."""
    host, port = listener.getsockname()[:2]
    return f"{'https' if is_tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"


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


def uvicorn_config(router: Router, log_level: str, tls: ssl.SSLContext | None = None) -> uvicorn.Config:
    """How the router is served."""
    config = uvicorn.Config(
        router,
        http=make_door_class(router.find_endpoint),
        lifespan="on",
        access_log=False,
        log_config=None,
        log_level=log_level,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        ws="none",
        timeout_graceful_shutdown=math.ceil(router.config.shutdown.grace_s + SLOW_CLIENT_S),
        backlog=BACKLOG,
    )
    if tls is not None:
        # Loading makes a context of files in uvicorn's way; ours takes its place.
        config.load()
        config.ssl = tls
    return config

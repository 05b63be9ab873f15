"""Runs a router as a process: one socket, one event loop, one line on stdout that says where.

The socket is bound before anything is made, so that a taken port is said at once, and announced only when every
worker was probed once and requests are taken.
"""

import gc
import logging
import socket
import ssl
import sys

import uvicorn

from router.app import Router
from router.collector import IdleCollector, PauseLog, keep_for_good, leave_oldest_alone
from router.config import FleetConfig
from router.config_watching import LogFormat
from router.errors import ConfigError
from router.logs import set_up_logging
from router.open_files import reserve_files
from router.proxy.door import make_door_class
from router.tls import CertificateWatch, ServerCertificate

#: How long running requests may take to end after a signal.
GRACE_S = 30
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
    ) -> None:
        super().__init__(config)
        self._addresses = addresses
        self._collector = collector
        self._certificates = certificates

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """See uvicorn."""
        await super().startup(sockets)
        if self.started:
            keep_for_good()
            leave_oldest_alone()
            self._collector.start()
            if self._certificates is not None:
                self._certificates.start()
            for place, address in enumerate(self._addresses):
                sys.stdout.write(f"{'admin' if place else 'listening'} on {address}\n")
            sys.stdout.flush()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """See uvicorn."""
        if self._certificates is not None:
            await self._certificates.stop()
        await self._collector.stop()
        await super().shutdown(sockets)


def serve_router(config: FleetConfig, log_level: str) -> None:
    """Serve until SIGINT or SIGTERM.

    Raises:
        SystemExit: An address cannot be bound, a file of the configuration not be used, or the log level is none.
    """
    level = logging.getLevelNamesMapping().get(log_level.upper())
    if level is None:
        sys.exit(f"error: log level {log_level!r}; valid: debug, info, warning, error")
    set_up_logging(level, as_json=config.logs.format is LogFormat.JSON)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    sockets = [bind(config.listen.host, config.listen.port)]
    if config.listen.admin_port is not None:
        sockets.append(bind(config.listen.admin_host, config.listen.admin_port))
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
    )
    server.run(sockets=sockets)


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
        http=make_door_class(router.find_answer),
        lifespan="on",
        access_log=False,
        log_config=None,
        log_level=log_level,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        ws="none",
        timeout_graceful_shutdown=GRACE_S,
        backlog=BACKLOG,
    )
    if tls is not None:
        # Loading makes a context of files in uvicorn's way; ours takes its place.
        config.load()
        config.ssl = tls
    return config

"""`dovecote sidecar`, also `python -m engine_shim.sidecar`: flags in, a serving process out."""

import logging
import socket
from pathlib import Path
from typing import Annotated, NoReturn
from urllib.parse import urlsplit

import typer
import uvicorn

from engine_shim.sidecar.app import build_app
from engine_shim.sidecar.layout_file import read_layout
from engine_shim.sidecar.service import SidecarService, SidecarSettings

_BACKLOG = 2_048

Engine = Annotated[str, typer.Option(help="Base URL of the engine, such as http://127.0.0.1:30000.")]
Host = Annotated[str, typer.Option(help="Interface of the HTTP and event sockets.")]
Port = Annotated[int, typer.Option(min=0, max=65_535, help="HTTP port; 0 takes a free one.")]
EventsPortBase = Annotated[int, typer.Option(min=0, max=65_535, help="Event port of rank 0; 0 takes a free run.")]
ReplayPortBase = Annotated[int, typer.Option(min=0, max=65_535, help="Replay port of rank 0; 0 takes a free run.")]
Topic = Annotated[str, typer.Option(help="Topic of the mirrored events, without what each batch adds.")]
Model = Annotated[
    str | None, typer.Option(help="Name under which blocks are hashed; the engine's base model if absent.")
]
BufferBatches = Annotated[int, typer.Option(min=1, max=1_000_000, help="Batches kept for replay, a rank.")]
BufferMib = Annotated[int, typer.Option(min=1, max=16_384, help="Bytes kept for replay, a rank, in MiB.")]
Redis = Annotated[
    str | None, typer.Option(envvar="DOVECOTE_REDIS", help="Redis to publish to for many routers: redis://host:6379/0.")
]
RedisName = Annotated[
    str | None, typer.Option(help="Beginning of the streams' names there; of this host and port if absent.")
]
LayoutFile = Annotated[
    Path | None, typer.Option(help="JSON list of the model's cache groups, where the engine's events do not tell.")
]
LogLevel = Annotated[str, typer.Option(help="debug, info, warning or error.")]


class SidecarProcess(uvicorn.Server):
    """Serves one sidecar until a signal comes, and says where it listens."""

    def __init__(self, service: SidecarService, listener: socket.socket, *, log_level: str = "warning") -> None:
        config = uvicorn.Config(
            build_app(service),
            lifespan="on",
            ws="none",
            access_log=False,
            log_config=None,
            log_level=log_level,
            server_header=False,
            timeout_graceful_shutdown=1,
        )
        super().__init__(config)
        self._listener = listener

    def serve_until_told(self) -> None:
        """Block until the end."""
        self.run(sockets=[self._listener])

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then say where."""
        await super().startup(sockets)
        host, port = self._listener.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        print(f"listening on http://{shown}:{port}", flush=True)  # noqa: T201  (the command's one line of output)


def sidecar(
    *,
    engine: Engine,
    host: Host = "127.0.0.1",
    port: Port = 30_100,
    events_port_base: EventsPortBase = 0,
    replay_port_base: ReplayPortBase = 0,
    topic: Topic = "kv",
    model: Model = None,
    buffer_batches: BufferBatches = 10_000,
    buffer_mib: BufferMib = 64,
    redis: Redis = None,
    redis_name: RedisName = None,
    layout: LayoutFile = None,
    log_level: LogLevel = "warning",
) -> None:
    """Mirror the cache events of a real engine, and serve them with replay and snapshots."""
    if log_level not in ("debug", "info", "warning", "error"):
        _refuse(f"--log-level {log_level!r}: use debug, info, warning or error")
    logging.basicConfig(level=log_level.upper(), format="%(asctime)s %(levelname)s %(name)s %(message)s")
    problem = _find_url_problem(engine)
    if problem is not None:
        _refuse(f"--engine {engine!r}: {problem}; an engine URL looks like http://host:30000")
    declared = None if layout is None else read_layout(layout)
    if isinstance(declared, str):
        _refuse(f"--layout {str(layout)!r}: {declared}")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        _refuse(f"cannot listen at {host} port {port}: {error}")
    settings = SidecarSettings(
        engine_url=engine.rstrip("/"),
        host=host,
        events_port_base=events_port_base,
        replay_port_base=replay_port_base,
        topic=topic,
        model=model,
        buffer_batches=buffer_batches,
        buffer_bytes=buffer_mib << 20,
        redis_url=redis or None,
        redis_name=redis_name or f"dovecote:events:{socket.gethostname()}:{listener.getsockname()[1]}",
        layout=declared,
    )
    SidecarProcess(SidecarService(settings), listener, log_level=log_level).serve_until_told()


def _find_url_problem(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        return str(error)
    return None if parts.scheme in {"http", "https"} and parts.hostname else "needs http:// or https:// and a host"


def _refuse(message: str) -> NoReturn:
    """What cannot work is said in one line on stderr, with exit status 2."""
    typer.echo(f"error: {message}", err=True)
    raise typer.Exit(2)


def main() -> None:
    """Entry of `python -m engine_shim.sidecar`."""
    typer.run(sidecar)

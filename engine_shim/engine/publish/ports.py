"""Runs of contiguous ports, reserved by binding the sockets themselves, so that no one else can take one between."""

import zmq

from engine_shim.engine.publish.config import Endpoint, bracketed

#: Bases tried before giving up; each failure means that another process holds a port of the run.
MAX_TRIES = 64


class PortsTaken(OSError):  # noqa: N818  (a fact about the machine, not a fault of ours)
    """No run of free ports could be bound at the wanted address."""


def bind_run(sockets: list["zmq.Socket[bytes]"], endpoint: Endpoint) -> Endpoint:
    """Bind `sockets` to consecutive ports, from `endpoint.port_base` or, where that is 0, from any free one.

    Returns:
        The endpoint with the base that was bound.

    Raises:
        PortsTaken: The named ports are in use, or no free run was found.
    """
    if not sockets:
        return endpoint
    if endpoint.port_base:
        _bind_from(sockets, endpoint)
        return endpoint
    for _ in range(MAX_TRIES):
        base = _bind_anywhere(sockets[0], endpoint.host)
        if base is None:
            continue
        found = Endpoint(endpoint.host, base)
        try:
            _bind_from(sockets[1:], Endpoint(endpoint.host, base + 1))
        except PortsTaken:
            sockets[0].unbind(sockets[0].get_string(zmq.LAST_ENDPOINT))
            continue
        return found
    raise PortsTaken(f"no {len(sockets)} contiguous free ports at {endpoint.host} after {MAX_TRIES} tries")


def _bind_anywhere(socket: "zmq.Socket[bytes]", host: str) -> int | None:
    """A port that the system chose; None where another process took it between its choice and its use."""
    try:
        socket.bind(f"tcp://{bracketed(host)}:*")
    except zmq.ZMQError as error:
        if error.errno == zmq.EADDRINUSE:
            return None
        raise PortsTaken(f"cannot bind an event socket at {host}: {error}") from error
    return int(socket.get_string(zmq.LAST_ENDPOINT).rpartition(":")[2])


def _bind_from(sockets: list["zmq.Socket[bytes]"], endpoint: Endpoint) -> None:
    bound: list[zmq.Socket[bytes]] = []
    for offset, socket in enumerate(sockets):
        try:
            socket.bind(endpoint.address(offset))
        except zmq.ZMQError as error:
            for earlier in bound:
                earlier.unbind(earlier.get_string(zmq.LAST_ENDPOINT))
            raise PortsTaken(f"cannot bind {endpoint.address(offset)}: {error}") from error
        bound.append(socket)

"""Whether a peer has closed its connection, asked of the kernel: of a socket that is not read from nothing else tells.

Source: tcp(7), `TCP_INFO`; linux/tcp.h and net/tcp_states.h: the first byte is the state, 1 where both sides are open.
"""

import socket
from typing import Any

_ESTABLISHED = 1


def has_departed(own: Any) -> bool:
    """Whether the other side of a connection that is open here has closed it; False where the system does not tell."""
    try:
        (state,) = own.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
    except (AttributeError, OSError, ValueError):
        return False
    return bool(state != _ESTABLISHED)

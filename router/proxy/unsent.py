"""What the kernel still holds of what was written to a socket.

A client that reads slowly empties the kernel's buffer, which can hold megabytes, long before the program's own is
touched: only both together tell whether it takes anything.
Source: tcp(7), `SIOCOUTQ` (the same request as `TIOCOUTQ`): bytes of the send queue that were not acknowledged.
"""

import fcntl
import struct
import termios
from typing import Any

_COUNT = struct.Struct("i")


def count_queued_bytes(own: Any) -> int:
    """Bytes of a socket that its peer has not acknowledged; 0 where the system does not tell."""
    try:
        (count,) = _COUNT.unpack(fcntl.ioctl(own.fileno(), termios.TIOCOUTQ, bytes(_COUNT.size)))
    except (AttributeError, OSError, ValueError):
        return 0
    return int(count)

"""How many files a router may have open: looked at before it starts, not when the eight thousandth stream comes.

A stream takes two sockets, the client's and the worker's. The soft limit of the process is raised as far as is needed
and allowed; what cannot be is an error that names the limit and what to do.
"""

import errno
import resource

from router.errors import ConfigError

#: Files beside streams: libraries, logs, probes, event sockets, connections that come and go.
SPARE_FILES = 512
_LIMIT_ERRNOS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL})


def is_own_limit(error: BaseException) -> bool:
    """Whether a connection failed because this process or machine is at its limits, which says nothing of the peer."""
    return isinstance(error, OSError) and error.errno in _LIMIT_ERRNOS


def reserve_files(streams: int) -> None:
    """Make sure that so many streams can be open at a time.

    Raises:
        ConfigError: The system does not allow it.
    """
    needed = 2 * streams + SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise ConfigError(
            file_name="configuration",
            key_path="limits.streams",
            value=streams,
            problem=f"needs {needed} open files, and RLIMIT_NOFILE allows {hard}: allow more (`ulimit -Hn`, "
            f"LimitNOFILE= of systemd, --ulimit nofile= of Docker), or set at most {max(0, (hard - SPARE_FILES) // 2)}",
        )
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))

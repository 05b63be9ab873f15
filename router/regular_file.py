"""Files that people write and the router reads: whole, while nobody writes them, and never waiting for one.

A pipe would keep the reader waiting for ever, and a device give no end. Text counts only where the file was the same
before and after it was read: part of a file can be a good configuration.
"""

import os
import select
import stat
import time
from pathlib import Path

from router.config.text import MAX_TEXT_CHARS
from router.errors import ConfigError

#: Times that a file is read which changes meanwhile.
MAX_READS = 3
#: Longest wait for what the other end of a pipe has to say.
PIPE_WAIT_S = 5.0
_PIECE_BYTES = 1 << 16
#: Tells one state of a file from another: time of its last change, size, number.
Mark = tuple[int, int, int]


def find_mark(path: Path) -> Mark | None:
    """Tells one state of a file from another; None where there is none."""
    try:
        return _mark(path.stat())
    except (OSError, ValueError):
        return None


def read_still(path: Path) -> tuple[Mark, str]:
    """A regular file's text, read while nobody wrote it, and its mark then.

    Raises:
        ConfigError: It cannot be read, is no regular file, or does not stand still.
    """
    for _ in range(MAX_READS):
        try:
            before, text, after = _read(path)
        except UnicodeDecodeError as error:
            raise make_error(path, "is not UTF-8 text") from error
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise make_error(path, f"cannot be read: {reason}") from error
        if before == after:
            return before, text
    raise make_error(path, "is being written")


def read_bytes(path: Path, limit_bytes: int) -> bytes:
    """The bytes of a regular file.

    Raises:
        ValueError: It cannot be read, is no regular file, is too large, or changes meanwhile.
    """
    try:
        with open(path, "rb", opener=_open) as file:
            before = os.fstat(file.fileno())
            if not stat.S_ISREG(before.st_mode):
                raise ValueError("not a regular file")
            if before.st_size > limit_bytes:
                raise ValueError(f"{before.st_size:,} bytes, more than {limit_bytes:,}")
            data = file.read(limit_bytes + 1)
            after = os.fstat(file.fileno())
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror or error}") from error
    if len(data) != before.st_size or after.st_mtime_ns != before.st_mtime_ns:
        raise ValueError("changed while it was read")
    return data


def _open(path: str, flags: int) -> int:
    # Opening a pipe would wait for a writer.
    return os.open(path, flags | os.O_NONBLOCK)


def _read(path: Path) -> tuple[Mark, str, Mark | None]:
    # A pipe would keep the reader waiting for ever, and a device give no end.
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(number)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("it is no regular file")
        with os.fdopen(number, encoding="utf-8", closefd=False) as file:
            text = file.read(MAX_TEXT_CHARS + 1)
        return _mark(status), text, find_mark(path)
    finally:
        os.close(number)


def _mark(status: os.stat_result) -> Mark:
    return status.st_mtime_ns, status.st_size, status.st_ino


def make_error(path: Path, problem: str) -> ConfigError:
    """What is wrong with a file."""
    return ConfigError(file_name=str(path), key_path="", value=None, problem=problem, shows_value=False)


def read_once(path: Path) -> str:
    """Text of a file that is read at the start and never again, which may be a pipe whose writer is there already.

    Raises:
        ConfigError: It cannot be read, or its writer says nothing for too long.
    """
    try:
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return _read_to_end(number).decode("utf-8")
        finally:
            os.close(number)
    except UnicodeDecodeError as error:
        raise make_error(path, "is not UTF-8 text") from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise make_error(path, f"cannot be read: {reason}") from error


def _read_to_end(number: int) -> bytes:
    """All that comes. Read before waited for: select does not tell of a writer that had gone before this end opened."""
    pieces, size_bytes, until_s = [], 0, time.monotonic() + PIPE_WAIT_S
    is_pipe = stat.S_ISFIFO(os.fstat(number).st_mode)
    while size_bytes <= 4 * MAX_TEXT_CHARS:
        try:
            piece = os.read(number, _PIECE_BYTES)
        except BlockingIOError:
            piece = None
        if piece:
            pieces.append(piece)
            size_bytes += len(piece)
        elif piece is not None and (pieces or not is_pipe):
            break
        elif not select.select([number], [], [], max(0.0, until_s - time.monotonic()))[0]:
            raise ValueError(f"nothing came for {PIPE_WAIT_S:g} s")
    return b"".join(pieces)

"""Reads the files of a tokenizer folder: bounded, regular, whole; what is wrong names the file.

A file may be damaged, endless, a loop of links, a device, or replaced at this moment. Each is a `ValueError` that says
which file and what about it; there is nothing else that reading one raises.
"""

import os
from pathlib import Path
from typing import Any

import msgspec
import xxhash

from router.regular_file import read_bytes

#: The largest published `tokenizer.json` has some 35 MB.
MAX_TOKENIZER_BYTES = 256 << 20
MAX_CONFIG_BYTES = 16 << 20
MAX_TEMPLATE_BYTES = 1 << 20


def read_file(path: Path, limit_bytes: int) -> bytes:
    """The bytes of a regular file.

    Raises:
        ValueError: It cannot be read, is no regular file, is too large, or changes meanwhile.
    """
    try:
        return read_bytes(path, limit_bytes)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def read_text(path: Path, limit_bytes: int) -> str:
    """The text of a UTF-8 file.

    Raises:
        ValueError: As `read_file`, or it is no UTF-8.
    """
    data = read_file(path, limit_bytes)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8: {error}") from error


def read_object(path: Path, limit_bytes: int) -> tuple[bytes, dict[str, Any]]:
    """The bytes of a JSON file and the object in it.

    Raises:
        ValueError: As `read_file`, or there is no object in it.
    """
    data = read_file(path, limit_bytes)
    try:
        return data, parse_object(data)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def parse_object(data: bytes) -> dict[str, Any]:
    """The object in some JSON.

    Raises:
        ValueError: There is none.
    """
    try:
        return msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"not a JSON object: {error}") from error


def identify(*contents: bytes) -> bytes:
    """A name that contents share only with equal ones."""
    digest = xxhash.xxh3_128()
    for content in contents:
        digest.update(len(content).to_bytes(8, "big") + content)
    return digest.digest()


def is_there(path: Path) -> bool:
    """Whether a name is taken, even by something that cannot be read."""
    return os.path.lexists(path)

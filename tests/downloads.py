"""Published files that `make test` fetched, read only when they are byte for byte what the tests were written with."""

import hashlib
from functools import cache
from pathlib import Path

import pytest

PINS = Path(__file__).parents[1] / "scripts/downloads.sha256"


@cache
def read_pins() -> dict[tuple[str, ...], str]:
    """Sums by the last two parts of a path: `qwen3/tokenizer.json`."""
    lines = (line.split(maxsplit=1) for line in PINS.read_text(encoding="utf-8").splitlines())
    return {Path(path).parts[-2:]: digest for digest, path in lines}


@cache
def check_pinned(path: Path) -> Path:
    """The path of a fetched file.

    The test skips where the file is absent, and fails where it is another than the one that is pinned.
    """
    if not path.is_file():
        pytest.skip(f"needs a published file, {path.parent.name}/{path.name}: run scripts/setup test")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != read_pins().get(path.parts[-2:]):
        pytest.fail(f"{path} has sha256 {digest}, not that of scripts/downloads.sha256: delete it and run make test")
    return path

"""Open a trace file, tell its form from its first line, and stream its sessions."""

from collections.abc import Callable, Iterator
from enum import StrEnum
from itertools import chain
from pathlib import Path
from typing import Any

from simulator.traces.lines import Line, TraceError, read_lines
from simulator.traces.lmcache import read_lmcache
from simulator.traces.session import Session, TraceScale
from simulator.traces.taubench import read_taubench
from simulator.traces.weka import read_weka


class TraceForm(StrEnum):
    """The record forms that can be read."""

    WEKA = "weka"
    LMCACHE = "lmcache"
    TAUBENCH = "tau-bench"


#: Keys that tell a form by its first line.
SIGNS: dict[TraceForm, frozenset[str]] = {
    TraceForm.WEKA: frozenset({"block_size", "requests"}),
    TraceForm.LMCACHE: frozenset({"timestamp", "input", "output", "session_id"}),
    TraceForm.TAUBENCH: frozenset({"task_id", "traj"}),
}
READERS: dict[TraceForm, Callable[[Iterator[Line], TraceScale], Iterator[Session]]] = {
    TraceForm.WEKA: read_weka,
    TraceForm.LMCACHE: read_lmcache,
    TraceForm.TAUBENCH: read_taubench,
}


def detect_form(path: Path) -> TraceForm:
    """The form of the file, from its first line.

    Raises:
        TraceError: The file is empty or its first line fits no known form.
    """
    return _form_of(path, next(read_lines(path), None))


def read_sessions(path: Path, scale: TraceScale | None = None) -> Iterator[Session]:
    """Stream the sessions of a trace in the order of the file.

    Args:
        path: A .jsonl or .jsonl.xz file of any known form.
        scale: How to make the trace smaller; None reads it as recorded.

    Raises:
        TraceError: The file cannot be read or a line is not what its form asks for.
    """
    lines = read_lines(path)
    first = next(lines, None)
    form = _form_of(path, first)
    rest = chain([first], lines) if first is not None else lines
    yield from READERS[form](rest, scale or TraceScale())


def _form_of(path: Path, first: Line | None) -> TraceForm:
    known = "; ".join(f"{form}: {', '.join(sorted(keys))}" for form, keys in SIGNS.items())
    if first is None:
        raise TraceError(path, None, f"the file is empty; expected JSON lines of one of these forms ({known})")
    record = first.decode(dict[str, Any], f"a JSON object of one of these forms ({known})")
    for form, keys in SIGNS.items():
        if keys <= record.keys():
            return form
    raise TraceError(path, first.number, f"unknown form; expected the keys of one of these ({known})")

"""How the process logs: lines of `event key=value`, or the same as JSON, a line each.

Events are written once, in the first form, and their fields are told apart by the template that they were written by,
never by what stands in a value: a client's words cannot make a field. Values are cut at `MAX_VALUE_CHARS`. No event
holds a prompt, an answer or a key; that is the duty of whoever writes one, and a test reads along.
"""

import json
import logging
import re
import sys
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

TEXT_FORMAT = "%(asctime)s level=%(levelname)s logger=%(name)s %(message)s"
MAX_VALUE_CHARS = 2_000
#: A template as events are written: a word, then fields whose values are placeholders or words in quotes.
_TEMPLATE = re.compile(r"(?:%s)?[a-z_]+(?:%s)?(?: [a-z_]+=(?:%[-+ #0]*\d*(?:\.\d+)?[a-z]|'[^'%]*'))*")
_FIELD = re.compile(r" ([a-z_]+)=(?:(%)[-+ #0]*\d*(?:\.\d+)?[a-z]|'([^']*)')")
#: Loggers of others that say much at their usual level.
_QUIET = ("httpx", "httpcore")


@lru_cache(maxsize=1_024)
def read_template(template: str) -> tuple[str, tuple[tuple[str, str | None], ...]] | None:
    """Event and fields of a template, each with its words where it has some of its own; None where it is none.

    Fields without a name are placeholders in the event.
    """
    if not _TEMPLATE.fullmatch(template):
        return None
    event, *_ = template.split(" ", 1)
    words = tuple(("", None) for _ in range(event.count("%s")))
    return event, words + tuple((found[1], None if found[2] else found[3]) for found in _FIELD.finditer(template))


class JsonFormatter(logging.Formatter):
    """A record as a line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter`."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        told: dict[str, Any] = {"time": at, "level": record.levelname.lower(), "logger": record.name}
        told |= _find_fields(record)
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)[-16 * MAX_VALUE_CHARS :]
        return json.dumps(told, ensure_ascii=False, default=str)


def _find_fields(record: logging.LogRecord) -> dict[str, Any]:
    known = read_template(record.msg) if isinstance(record.msg, str) else None
    arguments = record.args if isinstance(record.args, tuple) else (record.args,)
    placeholders = 0 if known is None else sum(words is None for _, words in known[1])
    if known is None or placeholders != len(arguments if record.args else ()):
        return {"event": "message", "message": record.getMessage()[:MAX_VALUE_CHARS]}
    event, fields = known
    values = iter(arguments)
    event %= tuple(str(next(values)) for name, _ in fields if not name)
    named = ((name, words) for name, words in fields if name)
    return {"event": event} | {name: _show(next(values)) if words is None else words for name, words in named}


def _show(value: object) -> object:
    """Numbers as they are, all else as text of bounded length."""
    if isinstance(value, bool | int | float) or value is None:
        return value
    text = str(value)
    return text if len(text) <= MAX_VALUE_CHARS else text[:MAX_VALUE_CHARS] + "…"


def set_up_logging(level: int, *, as_json: bool) -> None:
    """Log to standard error from now on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if as_json else logging.Formatter(TEXT_FORMAT))
    logging.basicConfig(level=level, handlers=[handler])
    for name in _QUIET:
        logging.getLogger(name).setLevel(max(level, logging.WARNING))

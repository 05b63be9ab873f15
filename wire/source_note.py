"""What a mirror of an engine says of itself in the topic of each batch: `TOPIC#INCARNATION/TRUST/LOSSES`.

A mirror numbers its own batches, so that its subscribers see no gap where it missed one of the engine's: it has
to say so. A subscriber to the bare topic gets every batch; one that knows no notes reads on without them.
"""

import re

import msgspec

_MARK = "#"
_FORM = re.compile(r"(?P<incarnation>[A-Za-z0-9_.-]{1,128})/(?P<trust>[a-z]{1,16})/(?P<losses>[0-9]{1,15})")


class SourceNote(msgspec.Struct, frozen=True):
    """State of a mirror when it published a batch."""

    #: Life of its numbering: another one after each start.
    incarnation: str
    #: How far it believes its own picture, in the words of `prefix_index.trust`.
    trust: str
    #: Times that it lost events of the engine for good.
    losses: int = 0


def write_topic(base: str, note: SourceNote) -> str:
    """Topic of a batch."""
    return f"{base}{_MARK}{note.incarnation}/{note.trust}/{note.losses}"


def read_note(topic: str) -> SourceNote | None:
    """The note in a topic; None where there is none, as with every engine."""
    found = _FORM.fullmatch(topic.rpartition(_MARK)[2]) if _MARK in topic else None
    return None if found is None else SourceNote(found["incarnation"], found["trust"], int(found["losses"]))

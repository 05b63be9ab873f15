"""What a decoder answers when bytes make no sense: a value, never an exception."""

import msgspec


class Malformed(msgspec.Struct, frozen=True):
    """Bytes from outside that could not be understood."""

    #: Short closed phrase, fit for a counter's label: no text from the bytes themselves.
    reason: str

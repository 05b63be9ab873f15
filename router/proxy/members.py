"""Members of a JSON object as they stand in its bytes. Pure."""

import msgspec

from router.errors import RequestError
from router.prompt.native import look_over

_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Members(msgspec.Struct, frozen=True):
    """Each where it stands."""

    by_name: dict[str, memoryview]
    #: Whether no name stands twice and every part can be decoded, which is then no question any more.
    is_sound: bool = False


def decode_members(data: bytes) -> Members:
    """Members of a JSON object.

    Raises:
        RequestError: It is none.
    """
    sound = look_over(data)
    if sound is not None:
        return Members(sound, is_sound=True)
    if not data:
        raise RequestError("the body is empty; a JSON object was expected")
    try:
        members = _MEMBERS.decode(data)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise RequestError(f"the body is not a JSON object: {tell_fault(error)}") from error
    except RecursionError as error:
        raise RequestError("the body nests too deep") from error
    return Members({name: memoryview(raw) for name, raw in members.items()})


def tell_fault(error: BaseException) -> str:
    """What a decoder said, without the client's bytes."""
    if isinstance(error, UnicodeDecodeError):
        return "not UTF-8"
    return "nested too deep" if isinstance(error, RecursionError) else str(error)[:200]

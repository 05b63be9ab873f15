"""Reads a whole answer of an engine for what the router has to know of it: counts, and its name. Pure."""

from typing import Any

import msgspec

from router.proxy.sse import Usage, read_usage, sum_usage
from router.proxy.told_error import read_error_status


class AnswerSummary(msgspec.Struct, frozen=True):
    """What is read of an answer."""

    usage: Usage | None = None
    #: What the engine calls it; of any kind.
    id: Any = None
    #: Status of an error that it tells, whatever its own says; None where it tells none.
    error_status: int | None = None


NOTHING_TOLD = AnswerSummary()


class _Body(msgspec.Struct):
    usage: Any = None
    id: Any = None
    meta_info: Any = None
    error: Any = None


_DECODER = msgspec.json.Decoder(_Body | list[Any])


def read_answer(body: bytes, *, choices_of_prompt: int = 1) -> AnswerSummary | None:
    """What a body says; None where it is no answer at all.

    Args:
        body: JSON: an object, or a list of them from SGLang's `/generate` where several answers were asked for.
        choices_of_prompt: Answers to each prompt, which stand together.
    """
    try:
        said = _DECODER.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if isinstance(said, _Body):
        usage = read_usage(said.usage) or read_usage(said.meta_info)
        return AnswerSummary(usage, said.id, None if said.error is None else read_error_status(said.error))
    if not said or not all(isinstance(each, dict) for each in said):
        return None
    usages = {place: read_usage(each.get("meta_info")) or Usage() for place, each in enumerate(said)}
    return AnswerSummary(sum_usage(usages, choices_of_prompt))

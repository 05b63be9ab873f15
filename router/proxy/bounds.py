"""What one request may ask for at most, by the values that its engine will act on, however they are spelled. Pure.

A number that an engine multiplies memory by (answers, prompts, log probabilities) is looked at as the engine reads it:
a float or a text of digits counts like the integer.
Source: docs/faults.md G08.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from router.errors import RequestError
from router.proxy.body import HOLDERS, RequestBody

_ANSWERS = ("n", "best_of")
_LOGPROBS = ("logprobs", "top_logprobs", "prompt_logprobs", "top_logprobs_num")
_OUTPUT = ("max_tokens", "max_completion_tokens", "max_output_tokens", "max_new_tokens", "min_tokens")
#: Lists of which each item is work of its own.
_ITEMS = (
    "prompt", "text", "input_ids", "input", "documents", "items", "queries", "text_1", "text_2", "data_1", "data_2",
)  # fmt: skip
#: All that is looked at, in the order in which it is.
_LIMITED = {name: place for place, name in enumerate((*HOLDERS, *_ANSWERS, *_LOGPROBS, *_OUTPUT, *_ITEMS))}
_LIMITED_NAMES = frozenset(_LIMITED)


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """Largest values."""

    #: Answers to one prompt, `n` and its like.
    choices: int = 128
    #: Prompts, documents or items in one body.
    prompts: int = 2_048
    #: Answers over all prompts.
    answers: int = 4_096
    #: Log probabilities of one token.
    logprobs: int = 128
    #: Tokens of an answer.
    output_tokens: int = 100_000_000


def check_bounds(body: RequestBody, bounds: Bounds) -> None:
    """Refuse what asks for too much.

    Raises:
        RequestError: Names the member and what would be valid.
    """
    for name in sorted(body.find_members(_LIMITED_NAMES), key=_LIMITED.__getitem__):
        if name in HOLDERS:
            _check_nested(name, body.get(name), bounds)
        elif name in _ITEMS:
            items = body.count_items(name)
            if items > bounds.prompts:
                raise RequestError(f"{name} holds {items} items; at most {bounds.prompts} are taken", param=name)
        else:
            _check_number(name, body.get(name), bounds)
    if body.choices > bounds.answers:
        problem = f"{body.choices} answers are asked for over all prompts; at most {bounds.answers} are"
        raise RequestError(problem, param="n")


def _check_nested(holder: str, value: Any, bounds: Bounds) -> None:
    for fields in value if isinstance(value, list) else [value]:
        if not isinstance(fields, Mapping):
            continue
        for name, said in fields.items():
            if name in _ANSWERS or name in _LOGPROBS or name in _OUTPUT:
                _check_number(name, said, bounds, within=f"{holder}.")


def _check_number(name: str, value: Any, bounds: Bounds, *, within: str = "") -> None:
    number = resolve(value)
    if number is None:
        return
    if name in _LOGPROBS:
        _refuse_outside(within + name, number, 0, bounds.logprobs)
    else:
        # What is too small is the engine's to answer: it means different things in different ones.
        _refuse_outside(within + name, number, None, bounds.choices if name in _ANSWERS else bounds.output_tokens)


def _refuse_outside(name: str, number: float, least: int | None, most: int) -> None:
    if number > most or (least is not None and number < least):
        valid = f"at most {most}" if least is None else f"{least} to {most}"
        raise RequestError(f"{name} is {number:g}; {valid} is taken", param=name)


def resolve(value: Any) -> float | None:
    """A number as engines read it, which take texts and floats for integers; None where it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return float("inf") if isinstance(value, int) else None

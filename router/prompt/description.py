"""Whether the content of a `tokenizer.json` can be meant, before its library makes anything of it.

The library checks types, and then believes every number: an id of two billion costs it minutes and memory.
"""

from collections.abc import Iterable, Mapping
from typing import Any

#: Beyond any vocabulary: the largest published ones have some 300,000 tokens.
MAX_TOKEN_ID = (1 << 24) - 1
MAX_TOKENS = 1 << 22
MAX_MERGES = 1 << 22
#: Added tokens: published files have up to some 7,000.
MAX_ADDED_TOKENS = 1 << 16


def check_description(description: Mapping[str, Any]) -> None:
    """Refuse what no tokenizer means.

    Raises:
        ValueError: It says what is wrong.
    """
    model = description.get("model")
    if not isinstance(model, dict):
        raise ValueError("it has no model")  # noqa: TRY004  (of the file, not of the call)
    _check_vocabulary(model.get("vocab"))
    merges = model.get("merges")
    if merges is not None and (not isinstance(merges, list) or len(merges) > MAX_MERGES):
        raise ValueError(f"its merges are no list of at most {MAX_MERGES:,}")
    added = description.get("added_tokens")
    if added is None:
        return
    if not isinstance(added, list) or len(added) > MAX_ADDED_TOKENS:
        raise ValueError(f"its added tokens are no list of at most {MAX_ADDED_TOKENS:,}")
    _check_ids((token.get("id") if isinstance(token, dict) else None for token in added), "an added token")


def _check_vocabulary(vocabulary: object) -> None:
    if not isinstance(vocabulary, dict | list) or not 0 < len(vocabulary) <= MAX_TOKENS:
        raise ValueError(f"its vocabulary is none of 1 to {MAX_TOKENS:,} tokens")
    if isinstance(vocabulary, dict):
        _check_ids(vocabulary.values(), "its vocabulary")
        if len(set(vocabulary.values())) < len(vocabulary):
            raise ValueError("its vocabulary gives one id to two tokens")


def _check_ids(ids: Iterable[object], where: str) -> None:
    for token_id in ids:
        if type(token_id) is not int or not 0 <= token_id <= MAX_TOKEN_ID:
            raise ValueError(f"{where} has the id {token_id!r:.40}, not one of 0 to {MAX_TOKEN_ID:,}")

"""Where a text can be cut so that both sides tokenize apart: after an added token that nothing can widen.

A tokenizer first looks for its added tokens, the leftmost and there the longest, and treats what lies between them
apart. The end of such a token is a cut, unless a flag lets it swallow neighbours, its text is first normalized, or
text that comes later could turn it into a part of a longer one.
Source: design section 3; the order of the two searches is that of `tokenizers`' AddedVocabulary.
"""

import json
import re
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import tokenizers


class AddedToken(msgspec.Struct, frozen=True):
    """One added token as `tokenizer.json` describes it."""

    content: str
    id: int
    normalized: bool
    #: It may swallow blanks around it, or counts only as a whole word.
    widened: bool


class Cuts:
    """Finds added tokens in texts, and those after which a text can be cut."""

    def __init__(self, tokens: Iterable[AddedToken], *, normalizes: bool) -> None:
        """Sort out which tokens are cuts.

        Args:
            tokens: All added tokens.
            normalizes: Whether the tokenizer has a normalizer that changes anything.
        """
        known = [token for token in tokens if token.content]
        first = {token.content for token in known if not token.normalized}
        second = {token.content for token in known if token.normalized}
        # Without a normalizer the second search sees the text as it is, but only between finds of the first one.
        if normalizes or any(_touch(early, late) for early in first for late in second):
            second = set()
        self._found = first | second
        swallowed = "\0".join(content[:-1] for content in self._found)
        widened = {token.content for token in known if token.widened}
        #: Tokens after which a text can be cut.
        self.contents = frozenset(
            content for content in self._found if content not in widened and content not in swallowed
        )
        #: Whether every added token is found where the tokenizer finds it.
        self.is_complete = not widened and len(self._found) == len({token.content for token in known})
        longest_first = sorted(self._found, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if self.contents else None

    def __bool__(self) -> bool:
        return bool(self.contents)

    def find_tokens(self, text: str) -> Iterator[re.Match[str]]:
        """Every added token in a text, in order, cutting or not."""
        return iter(()) if self._pattern is None else self._pattern.finditer(text)

    def find_ends(self, text: str) -> Iterator[int]:
        """Offsets just after each cutting token, in order."""
        return (match.end() for match in self.find_tokens(text) if match.group() in self.contents)

    def find_last(self, text: str) -> int:
        """Offset just after the last cutting token; 0 where there is none."""
        last = 0
        for end in self.find_ends(text):
            last = end
        return last

    def find_late(self, text: str, count: int) -> int:
        """Offset just after the last cutting token but so many less one; 0 where there are not that many."""
        ends = deque(self.find_ends(text), maxlen=count)
        return ends[0] if len(ends) == count else 0

    def split(self, text: str) -> list[str]:
        """Parts that end with a cutting token each, then what is left; joined they are the text."""
        segments, start = [], 0
        for end in self.find_ends(text):
            segments.append(text[start:end])
            start = end
        if start < len(text):
            segments.append(text[start:])
        return segments


def read_added_tokens(model: "tokenizers.Tokenizer") -> list[AddedToken]:
    """The added tokens of a tokenizer."""
    return [
        AddedToken(token.content, token_id, token.normalized, token.lstrip or token.rstrip or token.single_word)
        for token_id, token in model.get_added_tokens_decoder().items()
    ]


def find_cuts(model: "tokenizers.Tokenizer") -> Cuts:
    """The cuts of a tokenizer."""
    return Cuts(read_added_tokens(model), normalizes=not changes_nothing(_normalizer(model)))


def changes_nothing(normalizer: Any) -> bool:
    """Whether a normalizer of `tokenizer.json` is none, or a sequence of none."""
    if not isinstance(normalizer, dict):
        return normalizer is None
    parts = normalizer.get("normalizers")
    return normalizer.get("type") == "Sequence" and isinstance(parts, list) and all(map(changes_nothing, parts))


def _normalizer(model: "tokenizers.Tokenizer") -> Any:
    if model.normalizer is None:
        return None
    return json.loads(model.normalizer.__getstate__())


def _touch(one: str, other: str) -> bool:
    """Whether two tokens can share text: one inside the other, or an end of one starting the other."""
    if one in other or other in one:
        return True
    shorter = min(len(one), len(other))
    return any(one.endswith(other[:n]) or other.endswith(one[:n]) for n in range(1, shorter))

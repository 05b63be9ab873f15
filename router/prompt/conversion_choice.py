"""Which conversion of other APIs' bodies the engines of a model make, told by how long they say a prompt is. Pure.

No engine says what it makes of `/v1/messages` or `/v1/responses`, but each answer has the length of its prompt. A
conversion whose length is the engine's is proven; one that is not so is given up for the next one, a proven one after
a run of differences. When none is left, prompts of that API are placed without exact credit, and after many requests
all are tried again, for the engine may be another one.
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec

#: Differences in a row that a proven conversion is given up for.
RUN = 3
#: Requests that are placed without a conversion before all are tried again.
RETRY_AFTER = 1_000
#: Pairs of model and API that are remembered.
MAX_PAIRS = 4_096


class _Standing(msgspec.Struct):
    #: The conversions, in the order in which they are tried.
    forms: Sequence[str]
    #: Place of the conversion in use; beyond the last one, none is.
    place: int = 0
    is_proven: bool = False
    #: Differences in a row.
    differences: int = 0
    #: Requests since none is in use.
    without: int = 0


class ConversionChoice:
    """Conversions in use, a model and API."""

    def __init__(self, forms: Mapping[str, Sequence[str]]) -> None:
        """Start with the first form of each API.

        Args:
            forms: Names of the conversions by API, the likeliest first.
        """
        self._forms = forms
        self._standings: dict[tuple[str, str], _Standing] = {}

    def choose(
        self, model: str | None, api: str, *, find_likely: Callable[[], str | None] = lambda: None
    ) -> str | None:
        """The conversion to use now; None where none is right.

        Args:
            model: Name asked for.
            api: What is asked.
            find_likely: Says which one is to be tried first, where anything is known of it; asked once.
        """
        standing = self._find(model, api, find_likely)
        if standing.place >= len(standing.forms):
            standing.without += 1
            if standing.without < RETRY_AFTER:
                return None
            standing.place = standing.without = 0
        return standing.forms[standing.place]

    def judge(self, model: str | None, api: str, form: str, *, is_equal: bool) -> bool:
        """Whether a prompt was as long as the engine said; true where no conversion is left because of it."""
        standing = self._find(model, api, lambda: None)
        forms = standing.forms
        if standing.place >= len(forms) or forms[standing.place] != form:
            return False
        if is_equal:
            standing.is_proven, standing.differences = True, 0
            return False
        standing.differences += 1
        if standing.is_proven and standing.differences < RUN:
            return False
        standing.place += 1
        standing.is_proven, standing.differences = False, 0
        return standing.place >= len(forms)

    def _find(self, model: str | None, api: str, find_likely: Callable[[], str | None]) -> _Standing:
        key = (model or "", api)
        standing = self._standings.get(key)
        if standing is None:
            if len(self._standings) >= MAX_PAIRS:
                self._standings.clear()
            likely = find_likely()
            forms = sorted(self._forms[api], key=lambda form: form != likely)
            standing = self._standings[key] = _Standing(forms)
        return standing

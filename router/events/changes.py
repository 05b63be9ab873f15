"""What happened to a rank's cache lately, so that a wrong prediction can be explained or not. Pure.

Changes go in as they are applied, each at its time; asked for a span, it gives what was stored and removed in
it. Bounded: what fell out is said to be unknown, never guessed.

Kept in pages of changes that follow each other. A page knows of each place the last change that told of it, so that
looking for a place in a span costs one look a page, and neither recording nor asking walks over what is there.
"""

from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet

import msgspec

from prefix_index.base import Change
from prefix_index.runs import RunOutcome

#: Places that are remembered, and those of a page; more where one change has more.
MAX_HASHES = 262_144
PAGE_HASHES = 4_096
#: Changes of a page.
PAGE_CHANGES = 512
MAX_PAGES = 2 * MAX_HASHES // PAGE_HASHES
#: Kinds of news of a place: stored, removed, gained, lost.
_KINDS = range(4)


class Evidence(msgspec.Struct, frozen=True):
    """Blocks of one rank that came and went within a span."""

    stored: AbstractSet[int] = frozenset()
    removed: AbstractSet[int] = frozenset()
    #: Places that a window or recurrent group, or another tier, gained and lost.
    gained: AbstractSet[int] = frozenset()
    lost: AbstractSet[int] = frozenset()
    #: Everything went: a flush, a restart, a lost connection.
    cleared: bool = False


class _Kind:
    """News of one kind in a page. Arrays, because the garbage collector looks into everything else."""

    def __init__(self) -> None:
        #: Place -> number of the last change that told of it.
        self.last: dict[int, int] = {}
        #: Places in the order of the changes, and how many there were after each change.
        self._places = array("Q")
        self._ends = array("Q")

    def append(self, places: Sequence[int], number: int) -> None:
        if places:
            self.last.update(dict.fromkeys(places, number))
            self._places.extend(places)
        self._ends.append(len(self._places))

    def read(self, first: int, end: int) -> "array[int]":
        """Places of the changes [first, end), counted from the page's first."""
        start = self._ends[first - 1] if first > 0 else 0
        return self._places[start : self._ends[end - 1]] if end > first else self._places[:0]


class _Page:
    """Changes that follow each other."""

    def __init__(self, first: int) -> None:
        #: Number of its first change.
        self.first = first
        self.times_s = array("d")
        self.kinds = (_Kind(), _Kind(), _Kind(), _Kind())
        #: Numbers of the changes by which everything went.
        self.clears = array("Q")
        self.hashes = 0

    @property
    def end(self) -> int:
        """Number after its last change."""
        return self.first + len(self.times_s)

    @property
    def is_full(self) -> bool:
        """Whether the next change belongs to another page."""
        return self.hashes >= PAGE_HASHES or len(self.times_s) >= PAGE_CHANGES

    def append(self, news: tuple[Sequence[int], ...], now_s: float, *, cleared: bool) -> None:
        """One more change: places by kind."""
        number = self.end
        if cleared:
            self.clears.append(number)
        for kind, places in zip(self.kinds, news, strict=True):
            kind.append(places, number)
        self.hashes += sum(map(len, news))
        self.times_s.append(now_s)


class _Places(AbstractSet[int]):
    """Places with news of one kind in a span of changes; looks at no more than it is asked for."""

    def __init__(self, kind: int, pages: Sequence[_Page], start: int, end: int) -> None:
        self._start, self._end = start, end
        told = [(page.first, min(page.end, end), page.kinds[kind]) for page in pages if page.kinds[kind].last]
        #: Of each page that has some: the span's part of it, and its news.
        self._parts = [(max(0, start - first), max(0, last - first), news) for first, last, news in told]

    def __contains__(self, place: object) -> bool:
        for first, end, news in self._parts:
            last = news.last.get(place, -1)  # type: ignore[call-overload]
            if self._start <= last < self._end:
                return True
            # Told of again after the span: whether within it too, only the changes themselves say.
            if last >= self._end and place in news.read(first, end):
                return True
        return False

    def __iter__(self) -> Iterator[int]:
        return iter({place for first, end, news in self._parts for place in news.read(first, end)})

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        return any(news.read(first, end) for first, end, news in self._parts)

    def isdisjoint(self, other: Iterable[int]) -> bool:
        """Cost: a look at each of them, or at each place of a page, whatever is less, for every page."""
        wanted = set(other)
        return not any(place in self for _, _, news in self._parts for place in news.last.keys() & wanted)


class ChangeLog:
    """The last changes of one rank, numbered from 0."""

    def __init__(self, *, max_hashes: int = MAX_HASHES, max_pages: int = MAX_PAGES) -> None:
        self._max_hashes = max_hashes
        self._max_pages = max_pages
        self._pages: deque[_Page] = deque([_Page(0)])
        self._hashes = 0

    @property
    def position(self) -> int:
        """Number the next change gets."""
        return self._pages[-1].end

    def record(self, change: Change, now_s: float, *, is_gain: bool = True) -> None:
        """Append a change that did something; `is_gain` tells whether a store touched what it touched.

        Times must not go back.
        """
        gained, lost = (change.touched, ()) if is_gain else ((), change.touched)
        if change.stored or change.removed or change.touched or change.cleared:
            self._append((change.stored, change.removed, gained, lost), now_s, cleared=change.cleared)

    def record_run(self, run: RunOutcome, now_s: float) -> None:
        """Append what a run of batches did, as one change."""
        if run.is_change:
            self._append((run.stored, run.removed, run.gained, run.lost), now_s, cleared=run.clears > 0)

    def find_since(self, position: int, until_s: float) -> Evidence:
        """What changed from `position` on and not after `until_s`; of what fell out, nothing.

        Cost: some microseconds; a look for a place one step a page, whatever changes later.
        """
        pages = [page for page in self._pages if page.end > position]
        end = position
        for page in pages:
            end = page.first + bisect_right(page.times_s, until_s)
            if end < page.end:
                break
        stored, removed, gained, lost = (_Places(kind, pages, position, end) for kind in _KINDS)
        cleared = any(position <= number < end for page in pages for number in page.clears)
        return Evidence(stored, removed, gained, lost, cleared)

    def _append(self, news: tuple[Sequence[int], ...], now_s: float, *, cleared: bool) -> None:
        if self._pages[-1].is_full:
            self._pages.append(_Page(self.position))
        page = self._pages[-1]
        before = page.hashes
        page.append(news, now_s, cleared=cleared)
        self._hashes += page.hashes - before
        while len(self._pages) > 1 and (self._hashes > self._max_hashes or len(self._pages) > self._max_pages):
            self._hashes -= self._pages.popleft().hashes

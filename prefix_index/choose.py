"""Which index serves: the native one where its module was built, else the one in Python."""

from prefix_index.base import PrefixIndex
from prefix_index.hashing import native_available
from prefix_index.naive import NaivePrefixIndex
from prefix_index.native import NativePrefixIndex


def make_index(*, secret: int = 0, name_key: int = 0, max_orphans: int = 65_536) -> PrefixIndex:
    """An empty index of the fastest kind that this install has; see `NativePrefixIndex` for `name_key`."""
    if native_available():
        return NativePrefixIndex(secret=secret, name_key=name_key, max_orphans=max_orphans)
    return NaivePrefixIndex(secret=secret, max_orphans=max_orphans)

"""Who holds which block of which prompt.

Takes cache events of engines as bytes or values from `wire`, gives reusable tokens a holder to the
router's placement. Pure: no socket, no clock.
"""

from prefix_index.base import BlockChain, Change, PrefixIndex
from prefix_index.choose import make_index
from prefix_index.hashing import block_hashes
from prefix_index.naive import NaivePrefixIndex

__all__ = ["BlockChain", "Change", "NaivePrefixIndex", "PrefixIndex", "block_hashes", "make_index"]

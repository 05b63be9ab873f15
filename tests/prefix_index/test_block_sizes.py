"""Engines of one fleet with pages of different sizes: each is matched in its own, and compared in tokens."""

from rank_words import Rank, chain, stored

from prefix_index.base import BlockChain
from wire.events import BlockRemoved

STEM = tuple(range(1_000, 1_032))
LEFT, RIGHT = (*STEM, *range(32)), (*STEM, *range(500, 532))


def in_both_sizes(tokens) -> BlockChain:
    prompt = (*tokens, 7)
    wide = chain(prompt, block_tokens=64)
    small = chain(prompt, block_tokens=16)
    return BlockChain(16, small.hashes, small.token_count, others=(wide,))


def test_A07_small_pages_that_come_in_two_batches_and_branch_are_matched_beside_large_ones(index):
    small, large = Rank(index, "small"), Rank(index, "large")
    large.live(0, stored([1], None, LEFT))
    small.live(0, stored([11, 12], None, STEM))
    small.live(1, stored([13, 14], 12, LEFT[32:]), stored([23, 24], 12, RIGHT[32:]))
    assert index.find_reuse(in_both_sizes(LEFT)) == {small.target: 64, large.target: 64}
    assert index.find_reuse(in_both_sizes(RIGHT)) == {small.target: 64}


def test_A07_removing_a_small_page_shortens_its_own_branch(index):
    small = Rank(index, "small")
    small.live(0, stored([11, 12], None, STEM), stored([13, 14], 12, LEFT[32:]), stored([23, 24], 12, RIGHT[32:]))
    small.live(1, BlockRemoved(block_hashes=(13,)))
    assert index.find_reuse(in_both_sizes(LEFT)) == {small.target: 32}
    assert index.find_reuse(in_both_sizes(RIGHT)) == {small.target: 64}

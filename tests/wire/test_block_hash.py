"""Block identity: committed vectors, chaining, namespaces."""

import json
from array import array
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefix_index import hashing
from wire.block_hash import block_hashes, fold_keys, namespace_seed

VECTORS = json.loads((Path(__file__).parent / "block_hash_vectors.json").read_text(encoding="utf-8"))["vectors"]
TOKENS = st.lists(st.integers(0, 2**32 - 1), max_size=200)


@pytest.mark.parametrize("vector", VECTORS)
@pytest.mark.parametrize("hash_blocks", [block_hashes, hashing.block_hashes], ids=["python", "fastest"])
def test_hashes_equal_the_committed_vectors(vector, hash_blocks):
    seed = namespace_seed(**vector["namespace"])
    assert seed == vector["seed"]
    assert hash_blocks(vector["token_ids"], vector["block_tokens"], seed) == vector["hashes"]


def test_every_part_of_a_namespace_changes_the_seed():
    variants = [
        {"model": "m"},
        {"model": "n"},
        {"model": "m", "adapter": "x"},
        {"model": "m", "adapter": ""},
        {"model": "m", "cache_salt": "x"},
        {"model": "m", "cache_salt": ""},
        {"model": "m", "adapter": "x", "cache_salt": "x"},
        {"model": "m", "bigram": True},
        {"model": "m", "secret": 1},
    ]
    seeds = [namespace_seed(**variant) for variant in variants]
    assert all(one != other for one, other in combinations(seeds, 2))


@given(TOKENS, TOKENS, st.integers(1, 40), st.integers(0, 2**64 - 1))
def test_a_longer_prompt_keeps_the_hashes_of_its_prefix(head, tail, block_tokens, seed):
    short = block_hashes(head, block_tokens, seed)
    assert block_hashes(head + tail, block_tokens, seed)[: len(short)] == short


@given(TOKENS, st.integers(1, 40), st.integers(0, 2**64 - 1))
def test_the_chain_can_be_continued_from_any_block(tokens, block_tokens, seed):
    whole = block_hashes(tokens, block_tokens, seed)
    for done in range(1, len(whole)):
        assert block_hashes(tokens[done * block_tokens :], block_tokens, whole[done - 1]) == whole[done:]


def test_a_changed_token_changes_its_block_and_all_after_it():
    base = list(range(64))
    changed = [*base[:20], 999, *base[21:]]
    one, other = block_hashes(base, 16, 1), block_hashes(changed, 16, 1)
    assert one[0] == other[0]
    assert not set(one[1:]) & set(other[1:])


def test_content_keys_change_the_block_they_overlap():
    assert len({fold_keys(5, keys) for keys in ((), ("a",), (b"a",), (1,), ("1",), ("a", "b"), ("ab",))}) == 7


@pytest.mark.parametrize("hash_blocks", [block_hashes, hashing.block_hashes], ids=["python", "fastest"])
@pytest.mark.parametrize("tokens", [[-1], [2**32], ["1"], [1.5]])
def test_a_token_that_is_no_32_bit_number_is_a_value_error(hash_blocks, tokens):
    with pytest.raises(ValueError, match="token ids must be integers"):
        hash_blocks(tokens, 1, 0)


@pytest.mark.parametrize("hash_blocks", [block_hashes, hashing.block_hashes], ids=["python", "fastest"])
def test_a_block_of_no_tokens_is_a_value_error(hash_blocks):
    with pytest.raises(ValueError, match="block_tokens must be 1 or more"):
        hash_blocks([1], 0, 0)


@given(TOKENS, st.integers(1, 300), st.integers(0, 2**64 - 1))
def test_the_fastest_code_gives_the_same_hashes_as_python(tokens, block_tokens, seed):
    expected = block_hashes(tokens, block_tokens, seed)
    assert hashing.block_hashes(tokens, block_tokens, seed) == expected
    assert hashing.block_hashes(array("I", tokens), block_tokens, seed) == expected

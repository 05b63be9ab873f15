"""Page hashes agree with SGLang's published vectors, and with nothing of another namespace."""

import pytest

from engine_shim.engine.cache.page_hash import chain_digests, event_hash, namespace_digest
from engine_shim.engine.cache.token_bytes import pack_tokens, unpack_tokens
from tests.engine_shim.page_hashes import page_hashes

FIRST_128 = [
    8635429971592222890,
    1256577331724852459,
    5689809685380680247,
    3927976462491479733,
    5639345789331840936,
    -4601255381563393033,
    3368460852864325515,
    1233425155141659070,
]


def test_A20_a_prompt_has_the_same_hashes_in_every_process():
    assert page_hashes(range(1, 129), 16) == FIRST_128


def test_a_partial_page_is_chained_with_the_whole_digest_before_it():
    prior = chain_digests(b"", pack_tokens([1, 2, 3, 4]), 4)[-1]
    assert event_hash(prior) == -3488128144981237669
    assert event_hash(chain_digests(prior, pack_tokens([5]), 1)[0]) == -3787494577174227566


def test_a_bigram_page_covers_pairs_of_neighbours():
    assert page_hashes([1, 2, 3, 4, 5], 4, bigram=True) == [-638950109823820341]


def test_a_salt_starts_another_chain():
    assert page_hashes([1, 2, 3, 4], 4, cache_salt="tenant-a") == [3718046898735569995]


def test_A17_equal_tokens_under_two_salts_share_no_hash():
    salts = [None, "", "a", "b", "\ud800"]
    hashes = [value for salt in salts for value in page_hashes(range(32), 8, cache_salt=salt)]
    assert len(set(hashes)) == len(hashes)


def test_only_full_pages_are_hashed():
    assert page_hashes(range(1, 33 + 15), 16) == FIRST_128[:2]
    assert page_hashes([], 16) == []
    assert page_hashes([1], 1, bigram=True) == []


def test_a_chain_continues_where_it_stopped():
    packed = pack_tokens(range(1, 129))
    whole = chain_digests(namespace_digest("s"), packed, 16)
    first = chain_digests(namespace_digest("s"), packed[: 3 * 64], 16)
    assert whole == first + chain_digests(first[-1], packed[3 * 64 :], 16)


def test_packed_tokens_are_little_endian_and_come_back():
    assert pack_tokens([1, 2**32 - 1]) == b"\1\0\0\0\xff\xff\xff\xff"
    assert unpack_tokens(bytearray(pack_tokens([7, 0, 2**31]))) == (7, 0, 2**31)


@pytest.mark.parametrize("token_id", [-1, 2**32])
def test_a_token_outside_32_bits_is_refused(token_id):
    with pytest.raises(OverflowError):
        pack_tokens([token_id])

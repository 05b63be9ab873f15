"""Keys are held as digests, found whatever else is there, and refused when people thought them up."""

import hashlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.access import Key, KeyRing, Principal
from router.access.keys import find_key_problem, hash_key, make_key, read_digest

names = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=32, max_size=64)


def ring_of(keys):
    return KeyRing(Key(hashlib.sha256(key.encode()).digest(), Principal(name=key)) for key in keys)


@given(known=st.lists(names, unique=True, max_size=8), other=names)
def test_a_ring_knows_its_keys_and_no_other(known, other):
    ring = ring_of(known)
    assert len(ring) == len(known)
    for key in known:
        assert ring.find(key.encode()).name == key
    assert (ring.find(other.encode()) is not None) == (other in known)
    assert {each.name for each in ring.principals()} == set(known)


def test_two_digests_with_the_same_head_are_told_apart():
    first = hashlib.sha256(b"a" * 32).digest()
    twin = first[:8] + bytes(24)
    ring = KeyRing((Key(twin, Principal(name="twin")), Key(first, Principal(name="first"))))
    assert ring.find(b"a" * 32).name == "first"


def test_a_made_key_can_be_used_and_is_drawn_anew_each_time():
    first, second = make_key(), make_key()
    assert first != second
    assert find_key_problem(first) is None
    assert re.fullmatch(r"dvk_[A-Za-z0-9_-]{43}", first)
    assert read_digest(hash_key(first)) == hashlib.sha256(first.encode()).digest()


@pytest.mark.parametrize("key", ["", "hunter2", "x" * 31, "x" * 513, "é" * 40, "a b" * 20, "x" * 40 + "\n"])
def test_what_people_think_up_is_no_key(key):
    assert find_key_problem(key) is not None


@pytest.mark.parametrize("text", ["", "sha256:", "sha256:xyz", "sha256:" + "g" * 64, "md5:" + "0" * 64, "0" * 64])
def test_what_is_no_digest_is_none(text):
    assert read_digest(text) is None

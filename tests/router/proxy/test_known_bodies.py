"""A body that begins as a checked one is decoded from where it parts, and to the same members or the same error."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.errors import RequestError
from router.prompt.prefixes import PrefixDigest, digest_prefix
from router.proxy import known_bodies
from router.proxy.api import Api
from router.proxy.body import RequestBody
from router.proxy.known_bodies import KnownBodies
from router.proxy.members import decode_members

TEXT = "words " * 24_000
FIRST = [{"role": "system", "content": TEXT}, {"role": "user", "content": 'say "}],{" '}]
MORE = [{"role": "assistant", "content": None, "tool_calls": [{"role": "x"}]}, {"role": "user", "content": "]} é"}]


def encode(messages, *, spaced=False, head=None, tail=None):
    separators = None if spaced else (",", ":")
    body = {"model": "m", **(head or {}), "messages": messages, **(tail or {})}
    return json.dumps(body, ensure_ascii=False, separators=separators).encode()


def plain(members):
    return {name: bytes(value) for name, value in members.by_name.items()}, members.is_sound


class Counting:
    """Decodes and remembers how much it was given."""

    def __init__(self):
        self.sizes = []

    def __call__(self, data):
        self.sizes.append(len(data))
        return decode_members(data)


@pytest.mark.parametrize("spaced", [False, True])
def test_only_what_is_new_is_looked_over(spaced):
    known, counting = KnownBodies(), Counting()
    messages = FIRST
    for _ in range(5):
        body = encode(messages, spaced=spaced, tail={"tools": [], "stream": True})
        assert plain(known.decode(body, counting)) == plain(decode_members(body))
        messages = messages + MORE
    assert counting.sizes[0] > len(TEXT)
    assert max(counting.sizes[1:]) < 400


def test_a_body_that_parts_earlier_is_looked_over_in_full():
    known, counting = KnownBodies(), Counting()
    for body in (encode(FIRST), encode([{**FIRST[0], "content": "x" + TEXT}, *FIRST[1:], *MORE])):
        assert plain(known.decode(body, counting)) == plain(decode_members(body))
    assert min(counting.sizes) > len(TEXT)


JUNK = st.sampled_from(
    [
        *[
            b",]}",
            b", ] }",
            b"",
            b"]",
            b"]}",
            b"}",
            b",",
            b',{"role":"user"}]}',
            b',{"role":"user"}],"a":1}',
            b',"x"]}',
        ],
        *[b',1],"messages":[2]}', b',{"a":[1,{"b":2}]}]}  ', b' , {} ] , "stream" : true }', b",{]}", b",NaN]}"],
        *[b',{"a":"\\ud83d"}]}', b'],"model":1}', b',{}],"messages":[{}]}', b",,{}]}"],
    ]
)


@given(rest=JUNK, other=JUNK)
def test_whatever_follows_comes_out_as_without_memory(rest, other):
    known = KnownBodies()
    first = encode(FIRST)
    known.decode(first, decode_members)
    for body in (first[:-2] + rest, first[:-2] + other, first[:-2] + other + rest):
        assert outcome(body, known) == outcome(body, None)


def outcome(data, known):
    try:
        body = RequestBody(data, api=Api.CHAT, known=known)
    except RequestError as error:
        return error.message
    return {name: bytes(value) for name, value in body._members.items()}, body.to_forward()


def test_a_name_that_stands_twice_is_seen():
    known = KnownBodies()
    RequestBody(encode(FIRST), api=Api.CHAT, known=known)
    again = encode(FIRST + MORE)[:-1] + b',"messages":' + json.dumps(MORE).encode() + b"}"
    with pytest.raises(RequestError, match="twice"):
        RequestBody(again, api=Api.CHAT, known=known)


def test_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(known_bodies, "MIN_BYTES", 10)
    known = KnownBodies(max_bodies=5)
    for number in range(30):
        known.decode(encode([{"role": "user", "content": f"{number}" * 20}]), decode_members)
        assert len(known) <= 5
    assert sum(len(one.by_digest) for one in known._beginnings.values()) == 5


def test_a_body_whose_messages_end_before_those_of_a_known_one_is_known_by_its_own_end():
    known, counting = KnownBodies(), Counting()
    long, short = encode(FIRST + MORE + MORE), encode(FIRST, tail={"note": "x" * 4_000})
    for body in (long, short, encode(FIRST + MORE[::-1], tail={"note": "x"})):
        assert plain(known.decode(body, counting)) == plain(decode_members(body))
    assert counting.sizes[2] < 400


@given(text=st.binary(max_size=400), lengths=st.lists(st.integers(0, 400), max_size=8))
def test_digests_of_beginnings_are_those_of_their_bytes(text, lengths):
    digest = PrefixDigest(text, 3)
    for length in lengths:
        assert digest.at(length) == digest_prefix(text, length, 3)

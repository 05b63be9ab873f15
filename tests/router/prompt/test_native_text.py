"""A scan of a body accepts what every decoder takes and nothing else; chunks and places are those that Python finds."""

import json

import msgspec
import pytest
import xxhash
from hypothesis import example, given
from hypothesis import strategies as st

from router.errors import RequestError
from router.prompt import native
from router.prompt.native import chain_chunks, find_roles, look_over
from router.proxy.members import decode_members
from router.proxy.splice import has_repeated_names

built = pytest.mark.skipif(not native.text_available(), reason="the native module was not built (no C++ compiler)")
NAMES = st.sampled_from(["messages", "model", "tools", "a", "é", "role", 'q"'])
LEAVES = (st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats(1e-9, 1e90)) | st.text(max_size=40)
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4))
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=5)
#: Text that breaks JSON, or that decoders read in different ways.
PIECES = st.sampled_from(
    [
        *(b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b" ", b"\t", b"\0", b"\x1f", b"\x7f", b"\x0b", b"\xff"),
        *(
            b"\x80",
            b"\xc0\x80",
            b"\xe0\x80\x80",
            b"\xed\xa0\x80",
            b"\xf4\x90\x80\x80",
            b"\xe2\x80",
            b"\xf0\x9f\x98\x80",
        ),
        *(b"\xd0\xb6" * 4, b"\xe4\xb8\xad" * 3, b"\xed\x95\x9c" * 2, b"\xc1\x80" * 4, b"\xe0\x81\x81" * 3),
        *(b"\\ud800", b"\\udc00", b"\\ud83d\\ude00", b"\\u00", b"\\x", b"\\/", b"\\u0000", b"\xef\xbb\xbf"),
        *(b"1e999", b"1e99", b"-", b"01", b"5.", b".5", b"1E+5", b"-0", b"9" * 210, b"tru", b"nul", b"NaN", b'"a":1,'),
    ]
)


def encode(value, *, ascii_only=False, spaced=False):
    separators = (" , ", " : ") if spaced else (",", ":")
    return json.dumps(value, ensure_ascii=ascii_only, separators=separators).encode("utf-8", "surrogatepass")


def plain(members):
    return [(name, bytes(value)) for name, value in members.items()]


def decode_all(data):
    """Every member of a body by the decoder; None where it refuses one, or a name stands twice."""
    try:
        members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode(data)
        if has_repeated_names(data, members):
            return None
        for raw in members.values():
            msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return plain(members)


@built
@given(value=OBJECTS, ascii_only=st.booleans(), spaced=st.booleans())
def test_a_body_of_plain_names_is_sure(value, ascii_only, spaced):
    data = encode({name: inner for name, inner in value.items() if name in {"messages", "model", "a"}}, spaced=spaced)
    members = look_over(data)
    assert members is not None
    assert plain(members) == decode_all(data)
    whole = look_over(encode(value, ascii_only=ascii_only, spaced=spaced))
    assert whole is None or whole.keys() == value.keys()


@built
@given(value=OBJECTS, cuts=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 3), PIECES | st.binary(max_size=2))))
@example(value={}, cuts=[(1, 0, b'"a":1,'), (1, 0, b'"a":1,')])
@example(value={"a": "x" * 40}, cuts=[(20, 0, b"\xed\xa0\x80")])
@example(value={"a": "\u4e2d" * 9}, cuts=[(15, 0, b"\xed\xa0\x80")])
@example(value={"a": "\u4e2d" * 9}, cuts=[(15, 0, b"\xe0\x81\x81")])
@example(value={"a": "\u0436" * 9}, cuts=[(14, 0, b"\xc1\x80")])
@example(value={"a": "x" * 40}, cuts=[(20, 0, b"\\ud83d\\ue000")])
@example(value={"a": "x" * 40}, cuts=[(20, 0, b"\\udc00")])
def test_what_is_accepted_is_what_a_decoder_takes(value, cuts):
    data = encode(value)
    for place, length, piece in cuts:
        at = place % (len(data) + 1)
        data = data[:at] + piece + data[at + length :]
    members = look_over(data)
    if members is not None:
        assert plain(members) == decode_all(data)


@built
def test_deep_bodies_and_very_many_members_are_left_to_the_decoder():
    for data in (b'{"a":' + b"[" * 64 + b"]" * 64 + b"}", encode({f"m{number}": 1 for number in range(65)})):
        assert look_over(data) is None
        assert decode_members(data).by_name
    assert look_over(b'{"a":' + b"[" * 63 + b"]" * 63 + b"}") is not None


@pytest.mark.parametrize("is_built", [True, False])
def test_without_the_scan_the_members_are_the_same(monkeypatch, is_built):
    if not is_built:
        monkeypatch.setattr(native, "_native", None)
    members = decode_members(b' {"model": "m", "messages": [{"role": "user"}], "n": 1e2} ')
    assert plain(members.by_name) == [("model", b'"m"'), ("messages", b'[{"role": "user"}]'), ("n", b"1e2")]
    for data in (b"", b"[]", b'{"a":1', b'{"a":\xff}"', b'{"a":1}{}', b"{'a':1}"):
        with pytest.raises(RequestError, match="the body"):
            decode_members(data)


@given(
    pieces=st.lists(st.binary(max_size=700) | st.just(b"long " * 300), max_size=4),
    chunk_bytes=st.sampled_from([1, 4, 16, 64, 232, 233, 256, 300, 1_200]),
    seed=st.integers(0, 2**64 - 1),
    most=st.integers(0, 20),
)
def test_chunks_are_hashed_where_they_lie_as_if_the_pieces_were_one_text(pieces, chunk_bytes, seed, most):
    text, expected, before = b"\0".join(pieces), [], seed.to_bytes(8, "little")
    for start in range(0, len(text) // chunk_bytes * chunk_bytes, chunk_bytes)[:most]:
        before = xxhash.xxh3_64_intdigest(before + text[start : start + chunk_bytes]).to_bytes(8, "little")
        expected.append(before)
    views = tuple(memoryview(piece) for piece in pieces)
    options = {"chunk_bytes": chunk_bytes, "seed": seed, "max_chunks": most}
    assert chain_chunks(views, **options) == b"".join(expected)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "_native", None)
        assert chain_chunks(views, **options) == b"".join(expected)


@given(words=st.lists(st.sampled_from([b'"role"', b'"', b"role", b'"r', b"x" * 13, b'\\"role"']), max_size=30))
def test_roles_are_found_at_the_places_that_a_plain_search_finds(words):
    text, places, at = b"".join(words), [], -6
    while (at := text.find(b'"role"', at + 6)) >= 0:
        places.append(at)
    assert find_roles(memoryview(text), 3) == places[:3]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "_native", None)
        assert find_roles(memoryview(text), 3) == places[:3]


@built
def test_any_character_behind_a_backslash_is_taken_as_the_decoder_takes_it_wherever_it_stands():
    for place in range(18):
        for code in range(256):
            data = b'{"a":"' + b"." * place + b"\\" + bytes([code]) + b'0041................"}'
            assert (look_over(data) is None) == (decode_all(data) is None)


@built
@pytest.mark.parametrize("end", [b'"}', b'n"}', b'" ,"b":"\\\\"}'])
def test_of_a_row_of_backslashes_every_second_one_escapes_wherever_it_begins(end):
    for place in range(18):
        for row in range(40):
            data = b'{"a":"' + b"." * place + b"\\" * row + end + b" " * 20
            members = look_over(data)
            assert (None if members is None else plain(members)) == decode_all(data)

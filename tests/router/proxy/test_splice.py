"""Only the members that are meant change; every other byte of a body stays."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.proxy.splice import find_members, has_repeated_names, put_first, splice

NAMES = st.sampled_from(["model", "messages", "stream", "routed_dp_rank", 'a"b', "é", "", "x\\y"]) | st.text(max_size=5)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=8) | st.sampled_from(['{"', "}]", ":,", "\\"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=6)
FORMS = st.sampled_from([{}, {"separators": (",", ":")}, {"indent": 2}, {"ensure_ascii": False}])


@given(value=OBJECTS, form=FORMS)
def test_members_are_found_with_their_bytes(value, form):
    body = json.dumps(value, **form).encode()
    members = find_members(body)
    assert [member.name for member in members] == list(value)
    for member in members:
        assert json.loads(body[member.colon + 1 : member.end]) == value[member.name]


@given(value=OBJECTS, form=FORMS, cut=st.sets(NAMES, max_size=3), put=st.dictionaries(NAMES, VALUES, max_size=3))
def test_a_splice_gives_the_object_that_was_meant(value, form, cut, put):
    put = {name: new for name, new in put.items() if name not in cut}
    body = splice(json.dumps(value, **form).encode(), put={n: json.dumps(v).encode() for n, v in put.items()}, cut=cut)
    assert json.loads(body) == {name: v for name, v in value.items() if name not in cut} | put


@given(value=OBJECTS, form=FORMS)
def test_a_splice_of_nothing_is_the_same_bytes(value, form):
    body = json.dumps(value, **form).encode()
    assert splice(body, put={}, cut=["not there"] if "not there" not in value else []) == body


def test_C15_vendor_keys_number_spelling_and_blanks_survive():
    body = b'{ "z":1e400 , "big":9223372036854775808,\n"one":1.0,"routed_dp_rank":1, "u":"\\u00e9" }'
    assert splice(body, put={}, cut=["routed_dp_rank"]) == (
        b'{"z":1e400 ,"big":9223372036854775808,"one":1.0,"u":"\\u00e9" }'
    )
    kept = body.replace(b'"one":1.0', b'"one":2')
    assert splice(body, put={"one": b"2"}, cut=[]) == kept
    assert put_first(body, {"s": b"true"}) == b'{"s":true,' + body[1:]


@given(value=OBJECTS.filter(bool), form=FORMS)
def test_a_repeated_name_is_seen_and_a_single_one_is_not(value, form):
    body = json.dumps(value, **form).encode()
    members = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    assert not has_repeated_names(body, members)
    name = next(iter(value))
    twice = put_first(body, {name: b"1"})
    assert has_repeated_names(twice, msgspec.json.decode(twice, type=dict[str, msgspec.Raw]))


@pytest.mark.parametrize("body", [b"{}", b" { } "])
def test_an_empty_object_takes_members(body):
    assert json.loads(splice(body, put={"a": b"1"}, cut=[])) == {"a": 1}


def test_escaped_names_are_the_names_they_spell():
    body = b'{"routed_dp\\u005frank":7,"a":1}'
    assert splice(body, put={}, cut=["routed_dp_rank"]) == b'{"a":1}'

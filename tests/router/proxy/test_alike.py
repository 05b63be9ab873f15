"""Events told at a glance are those that a look through them would have found to be more of the same."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.proxy.alike import MAX_CHUNK_BYTES, learn
from router.proxy.sse import LESSON_CHUNKS, MAX_LESSONS, StreamScanner

FIRST = {"id": "c", "choices": [{"index": 0, "delta": {"content": "first"}, "finish_reason": None}]}
#: What may stand in a text, whole words of the format among it.
TEXTS = st.lists(
    st.sampled_from(['"', "\\", "\n", "a", "é", "🐦", "[DONE]", '"usage"', '","finish_reason":"stop', "{", "}"]),
    max_size=6,
).map("".join)


def event(payload, *, compact=True, ascii_only=False):
    text = json.dumps(payload, separators=(",", ":") if compact else None, ensure_ascii=ascii_only)
    return b"data: " + text.encode() + b"\n\n"


def saying(text, finish=None, **more):
    return {"id": "c", "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}], **more}


def framed(piece):
    return b"%x\r\n%b\r\n" % (len(piece), piece)


def begun(*, compact=True, ascii_only=False, **more):
    scanner = StreamScanner()
    for text in ("a", "b"):
        scanner.feed(event(saying(text, **more), compact=compact, ascii_only=ascii_only))
    return scanner


def see(scanner):
    return scanner.output_chunks, scanner.is_complete, scanner.usage, scanner.has_error


EVENTS = st.lists(
    st.one_of(
        TEXTS.map(saying),
        st.builds(saying, TEXTS, st.sampled_from([None, "stop"])),
        st.just({"id": "c", "choices": [], "usage": {"prompt_tokens": 2}}),
        st.just({"error": {"message": "x"}}),
        st.just({"id": "c", "choices": [{"index": 0, "delta": {"tool_calls": [{"id": "t"}]}, "finish_reason": None}]}),
    ),
    max_size=12,
)


@given(EVENTS, st.booleans(), st.booleans(), st.data())
def test_C11_what_is_passed_in_its_own_framing_is_read_as_if_it_were_not(payloads, compact, ascii_only, data):
    events = [event(payload, compact=compact, ascii_only=ascii_only) for payload in payloads]
    passing, reading = begun(compact=compact, ascii_only=ascii_only), StreamScanner()
    for first in ("a", "b"):
        # One event in two pieces is never told at a glance.
        for part in (event(saying(first), compact=compact)[:9], event(saying(first), compact=compact)[9:]):
            reading.feed(part)
    while events:
        count = data.draw(st.integers(1, len(events)))
        together, events = events[:count], events[count:]
        if not passing.feed_chunks(b"".join(map(framed, together))):
            assert passing.feed(b"".join(together)) == b"".join(together)
        for each in together:
            reading.feed(each[:9])
            reading.feed(each[9:])
        assert see(passing) == see(reading)


def test_more_of_the_same_is_passed():
    scanner = begun()
    for text in ("c", "", " hello", "日本 🐦", "[DONE]", "a\n"):
        before = scanner.output_chunks
        assert scanner.feed_chunks(framed(event(saying(text))) * 2)
        assert scanner.output_chunks - before == 2


def test_an_engine_that_says_the_second_in_each_event_is_known_again_in_every_one():
    scanner, passed = begun(), 0
    for second in range(100):
        for _ in range(20):
            each = event(saying("x", created=second))
            if scanner.feed_chunks(framed(each)):
                passed += 1
            else:
                scanner.feed(each)
    assert scanner.output_chunks == 2 + 2_000
    assert passed == 19 * 100


@pytest.mark.parametrize("compact", [True, False])
def test_a_usage_that_is_null_says_nothing(compact):
    scanner = begun(usage=None, compact=compact)
    assert scanner.feed_chunks(framed(event(saying("c", usage=None), compact=compact)))
    scanner.feed(event(saying("", usage={"prompt_tokens": 3}), compact=compact))
    assert scanner.usage.prompt_tokens == 3


def test_events_of_which_no_two_are_alike_are_not_learned_one_by_one(monkeypatch):
    learned = []
    monkeypatch.setattr("router.proxy.sse.learn", lambda each: learned.append(each) or learn(each))
    scanner = begun()
    for number in range(1_000):
        each = event(saying("x", sequence_number=number))
        assert not scanner.feed_chunks(framed(each))
        scanner.feed(each)
    assert len(learned) <= MAX_LESSONS + 1_002 // LESSON_CHUNKS


EVENT = event(saying("x"))


@pytest.mark.parametrize(
    "chunks",
    [
        framed(EVENT)[:-1],
        framed(EVENT) + b"1",
        framed(EVENT) + b"0\r\n\r\n",
        b"0" + framed(EVENT),
        b"%X\r\n%b\r\n" % (0xAB, EVENT.ljust(0xAB)),
        b"%x;a=b\r\n%b\r\n" % (len(EVENT), EVENT),
        framed(EVENT[:20]) + framed(EVENT[20:]),
        framed(EVENT)[:-2] + b"xx",
        framed(EVENT + EVENT),
        framed(event(saying("x" * MAX_CHUNK_BYTES))),
        framed(event(saying("x", "stop"))),
        framed(event(saying("x", usage={"prompt_tokens": 1}))),
        framed(EVENT.replace(b'"x"', b'"x","usage":"y"')),
        framed(EVENT.replace(b'"x"', b'"x\\"')),
        b"",
    ],
)
def test_what_is_framed_or_said_otherwise_is_left_to_the_parser(chunks):
    scanner = begun()
    before = scanner.output_chunks
    assert not scanner.feed_chunks(chunks)
    assert scanner.output_chunks == before


def test_a_form_without_a_text_is_not_learned():
    assert learn(b'data: {"choices":[{"delta":{"content":""}}]}\n\n') is None
    assert learn(EVENT).fits(EVENT, 0, len(EVENT))

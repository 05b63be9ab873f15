"""Frames of live messages, replay requests and replay answers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wire import frames
from wire.frames import LiveFrame, ReplayEnd, ReplayFrame, parse_live, parse_replay, parse_replay_request
from wire.malformed import Malformed

SEQ = st.integers(0, 2**63 - 1)


@given(st.text(max_size=20), SEQ, st.binary(max_size=50))
def test_a_live_message_reads_back_as_written(topic, seq, payload):
    assert parse_live(frames.encode_live(topic, seq, payload)) == LiveFrame(topic, seq, payload)


@given(SEQ, st.binary(max_size=50), st.sampled_from([None, "", "kv@host@model"]))
def test_a_replayed_batch_reads_back_with_and_without_topic(seq, payload, topic):
    assert parse_replay(frames.encode_replay(seq, payload, topic=topic)) == ReplayFrame(seq, payload, topic or None)


@pytest.mark.parametrize("topic_frame", [True, False])
def test_the_end_of_a_replay_reads_back(topic_frame):
    assert parse_replay(frames.encode_replay_end(topic_frame=topic_frame)) == ReplayEnd()


def test_a_replay_request_is_a_delimiter_and_eight_bytes():
    assert frames.encode_replay_request(258) == [b"", b"\0\0\0\0\0\0\1\2"]
    assert parse_replay_request([b"", b"\0\0\0\0\0\0\1\2"]) == 258


SEQ_BYTES = (37).to_bytes(8, "big")


@pytest.mark.parametrize(
    ("shape", "topic"),
    [
        ([b"", SEQ_BYTES, b"payload"], None),
        ([b"", b"topic", SEQ_BYTES, b"payload"], "topic"),
        ([b"", b"", SEQ_BYTES, b"payload"], None),
        ([SEQ_BYTES, b"payload"], None),
        ([b"topic", SEQ_BYTES, b"payload"], "topic"),
    ],
    ids=["delimiter", "delimiter and topic", "empty topic", "bare", "topic without delimiter"],
)
def test_A04_replay_answers_with_and_without_topic_frame_are_read(shape, topic):
    assert parse_replay(shape) == ReplayFrame(37, b"payload", topic)


@pytest.mark.parametrize(
    "shape",
    [
        [],
        [b"payload"],
        [b"", b"topic", SEQ_BYTES, b"payload", b"more"],
        [b"x", b"topic", SEQ_BYTES, b"payload"],
        [b"", b"1234567", b"payload"],
        [b"", b"\xff" * 7 + b"\xfe", b"payload"],
    ],
)
def test_A04_frames_of_no_known_shape_are_values(shape):
    assert isinstance(parse_replay(shape), Malformed)


@given(st.lists(st.binary(max_size=12), max_size=6))
def test_no_frames_make_a_parser_raise(shape):
    for parse in (parse_live, parse_replay, parse_replay_request):
        parse(shape)


def test_a_payload_over_the_limit_is_refused(monkeypatch):
    monkeypatch.setattr(frames, "MAX_PAYLOAD_BYTES", 10)
    assert parse_live([b"", SEQ_BYTES, b"x" * 11]) == Malformed("payload size")
    assert parse_replay([b"", SEQ_BYTES, b"x" * 11]) == Malformed("payload size")

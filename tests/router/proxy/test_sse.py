"""Streams are read in any cut and leave byte for byte as they came."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.proxy.sse import MAX_EVENT_BYTES, StreamScanner, Usage, looks_like_stream, read_usage


def event(payload, newline=b"\n"):
    text = payload if isinstance(payload, bytes) else json.dumps(payload, ensure_ascii=False).encode()
    return b"data: " + text + newline + newline


def chunk(content="", *, finish=None, index=0, **more):
    return {"id": "c", "choices": [{"index": index, "delta": {"content": content}, "finish_reason": finish}], **more}


USAGE = {
    "prompt_tokens": 20,
    "completion_tokens": 3,
    "total_tokens": 23,
    "prompt_tokens_details": {"cached_tokens": 16},
}
ROLE = event(
    {"id": "c", "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]}
)
USAGE_CHUNK = event({"id": "c", "choices": [], "usage": USAGE})
DONE = event(b"[DONE]")
STREAM = [ROLE, event(chunk("日本")), event(chunk("語 🐦")), event(chunk("", finish="stop")), USAGE_CHUNK, DONE]


def relay(scanner, pieces):
    return b"".join([*(scanner.feed(piece) for piece in pieces), scanner.finish()])


def cut(data, places):
    edges = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[start:end] for start, end in pairwise(edges)]


@pytest.mark.parametrize("drops", [False, True])
@pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
def test_C11_a_stream_split_at_every_byte_leaves_unchanged_and_reads_the_same(drops, newline):
    data = b"".join(STREAM).replace(b"\n", newline)
    wanted = data.replace(USAGE_CHUNK.replace(b"\n", newline), b"") if drops else data
    for place in range(len(data) + 1):
        scanner = StreamScanner(drop_usage_chunk=drops)
        assert relay(scanner, [data[:place], data[place:]]) == wanted
        assert scanner.usage == Usage(20, 3, 16)
        assert scanner.is_done
        assert scanner.has_output


@given(
    places=st.lists(st.integers(min_value=0, max_value=10_000), max_size=40), crlf=st.booleans(), drops=st.booleans()
)
def test_any_cut_gives_the_same_bytes_and_the_same_reading(places, crlf, drops):
    newline = b"\r\n" if crlf else b"\n"
    data = b"".join(STREAM).replace(b"\n", newline)
    wanted = data.replace(USAGE_CHUNK.replace(b"\n", newline), b"") if drops else data
    scanner = StreamScanner(drop_usage_chunk=drops)
    assert relay(scanner, cut(data, places)) == wanted
    assert (scanner.usage, scanner.is_complete, scanner.has_error) == (Usage(20, 3, 16), True, False)


@given(pieces=st.lists(st.binary(max_size=60), max_size=20), drops=st.booleans())
def test_any_bytes_pass_unharmed(pieces, drops):
    scanner = StreamScanner(drop_usage_chunk=drops)
    assert relay(scanner, pieces) == b"".join(pieces)


@given(
    events=st.lists(
        st.sampled_from([*STREAM, event(b"{broken"), b": ping\n\n", event(b"[1,2]"), b"\n\n"]), max_size=12
    ),
    places=st.lists(st.integers(min_value=0, max_value=10_000), max_size=20),
)
def test_only_usage_chunks_are_left_out(events, places):
    scanner = StreamScanner(drop_usage_chunk=True)
    assert relay(scanner, cut(b"".join(events), places)) == b"".join(entry for entry in events if entry != USAGE_CHUNK)


@pytest.mark.parametrize("blanks", [b"\n", b"\r\n", b"\n\n", b"\n\n\n"])
def test_blank_lines_before_a_usage_chunk_are_not_left_out_with_it(blanks):
    data = b": ping\n\n" + blanks + USAGE_CHUNK + b": ping\n\n"
    for place in range(len(data)):
        relayed = relay(StreamScanner(drop_usage_chunk=True), [data[:place], data[place:]])
        assert relayed == data.replace(USAGE_CHUNK, b"")


@pytest.mark.parametrize("blanks", [b"\n", b"\r\n", b"\n\n\n"])
def test_more_blank_lines_than_needed_pass_too(blanks):
    data = ROLE + blanks + event(chunk("a")) + blanks
    for place in range(len(data)):
        assert relay(StreamScanner(drop_usage_chunk=True), [data[:place], data[place:]]) == data


def test_nothing_is_held_back_when_nothing_is_to_be_left_out():
    scanner = StreamScanner()
    assert scanner.feed(b"data: {") == b"data: {"


def test_an_endless_event_is_forwarded_unread_and_the_next_one_is_read_again():
    head = b"data: " + b"x" * (MAX_EVENT_BYTES + 10)
    for drops in (False, True):
        scanner = StreamScanner(drop_usage_chunk=drops)
        pieces = [head, b"y" * 100, b"zz\n", b"\n" + USAGE_CHUNK[:10], USAGE_CHUNK[10:], DONE]
        wanted = b"".join(pieces) if not drops else b"".join(pieces).replace(USAGE_CHUNK, b"")
        assert relay(scanner, pieces) == wanted
        assert scanner.usage == Usage(20, 3, 16)
        assert scanner.is_done


def test_role_and_empty_text_are_no_output():
    scanner = StreamScanner()
    scanner.feed(ROLE)
    assert not scanner.has_output
    scanner.feed(event(chunk("a")))
    assert scanner.has_output


def test_tool_calls_and_reasoning_are_output():
    for delta in ({"tool_calls": [{"index": 0}]}, {"reasoning_content": "hm"}):
        scanner = StreamScanner()
        scanner.feed(event({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}))
        assert scanner.has_output


def test_text_completions_are_read_too():
    scanner = StreamScanner()
    scanner.feed(event({"choices": [{"index": 0, "text": "a", "finish_reason": None}]}))
    assert scanner.has_output
    assert scanner.output_chunks == 1


def test_C12_an_answer_is_complete_with_done_or_with_the_end_of_all_its_choices():
    cut_off = StreamScanner()
    relay(cut_off, [ROLE, event(chunk("a"))])
    assert not cut_off.is_complete
    finished = StreamScanner()
    relay(finished, [ROLE, event(chunk("a")), event(chunk(finish="length"))])
    assert finished.is_complete
    one_of_two = StreamScanner(choices=2)
    relay(one_of_two, [event(chunk("a")), event(chunk(finish="stop", index=1))])
    assert not one_of_two.is_complete


def test_an_error_event_of_the_engine_is_noticed():
    scanner = StreamScanner()
    relay(scanner, [ROLE, event(chunk("a")), event({"error": {"message": "out of memory"}})])
    assert scanner.has_error


def test_words_of_the_protocol_inside_the_text_mean_nothing():
    scanner = StreamScanner(drop_usage_chunk=True)
    spoken = event(chunk('say [DONE] and "usage":{} and "finish_reason":"stop" and "choices":[]'))
    assert relay(scanner, [ROLE, event(chunk("a")), spoken]) == b"".join([ROLE, event(chunk("a")), spoken])
    assert not scanner.is_complete
    assert scanner.usage is None


def test_continuous_usage_keeps_its_chunks():
    scanner = StreamScanner(drop_usage_chunk=True)
    counted = event(chunk("a", usage=USAGE))
    assert relay(scanner, [counted]) == counted
    assert scanner.usage == Usage(20, 3, 16)


def test_output_tokens_are_the_engines_count_else_the_chunks():
    scanner = StreamScanner()
    relay(scanner, [ROLE, *[event(chunk("a"))] * 5])
    assert scanner.to_usage().completion_tokens == 6
    relay(scanner, [USAGE_CHUNK])
    assert scanner.to_usage() == Usage(20, 3, 16)


@pytest.mark.parametrize(
    "value",
    [
        None,
        3,
        "x",
        [],
        {"prompt_tokens": -1},
        {"prompt_tokens_details": None},
        {"prompt_tokens_details": {"cached_tokens": "9"}},
    ],
)
def test_odd_usage_has_no_counts(value):
    usage = read_usage(value)
    assert usage is None or usage == Usage()


@pytest.mark.parametrize(
    ("head", "wanted"),
    [(b"data: x", True), (b"d", True), (b": ping", True), (b"", True), (b"{", False), (b"<html>", False)],
)
def test_the_first_bytes_tell_a_stream_from_garbage(head, wanted):
    assert looks_like_stream(head) is wanted


def named(kind, **fields):
    return f"event: {kind}\n".encode() + event({"type": kind, **fields})


RESPONSE_USAGE = {"input_tokens": 20, "output_tokens": 3, "input_tokens_details": {"cached_tokens": 16}}
RESPONSE = [
    named("response.created", response={"id": "resp_1", "usage": None, "error": None}),
    named("response.output_item.added", item={"type": "message"}),
    named("response.output_text.delta", delta='say "response" and [DONE]'),
    named("response.output_text.delta", delta="\n\n日本"),
    named("response.output_text.done", text="…"),
    named("response.completed", response={"id": "resp_1", "usage": RESPONSE_USAGE}),
]


@given(
    places=st.lists(st.integers(min_value=0, max_value=10_000), max_size=40), crlf=st.booleans(), drops=st.booleans()
)
def test_a_response_is_read_the_same_in_any_cut(places, crlf, drops):
    data = b"".join(RESPONSE).replace(b"\n", b"\r\n" if crlf else b"\n")
    scanner = StreamScanner(drop_usage_chunk=drops)
    assert relay(scanner, cut(data, places)) == data
    assert (scanner.response_id, scanner.is_complete, scanner.has_error) == ("resp_1", True, False)
    assert scanner.to_usage() == Usage(20, 3, 16)
    assert scanner.has_output


def test_a_response_is_complete_with_its_last_event_and_not_before():
    scanner = StreamScanner()
    for piece in RESPONSE[:-1]:
        scanner.feed(piece)
        assert not scanner.is_complete
    assert scanner.output_chunks >= 2
    for kind in ("response.completed", "response.incomplete", "response.failed"):
        ended = StreamScanner()
        relay(ended, [*RESPONSE[:-1], named(kind, response={"id": "resp_1"})])
        assert ended.is_complete
        assert ended.has_error is (kind == "response.failed")


@pytest.mark.parametrize(
    "odd",
    [{"type": 7}, {"type": "response.created", "response": []}, {"type": "response.created", "response": {"id": 3}},
     {"type": "response.completed", "response": {"usage": "x"}}],
)  # fmt: skip
def test_odd_events_of_a_response_name_nothing(odd):
    scanner = StreamScanner()
    relay(scanner, [event(odd)])
    assert scanner.response_id is None
    assert scanner.usage is None


MESSAGE_START = {"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": 5, "output_tokens": 0}}}
MESSAGE = b"".join(
    b"event: x\ndata: " + json.dumps(each).encode() + b"\n\n"
    for each in (
        MESSAGE_START,
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "message_stop é日🐦"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "b"}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
        {"type": "message_stop"},
    )
)
GENERATED = b"".join(
    b"data: " + json.dumps({"text": text, "index": 0, "meta_info": meta}, ensure_ascii=False).encode() + b"\n\n"
    for text, meta in (
        ("é", {"prompt_tokens": 5, "completion_tokens": 1, "cached_tokens": 4, "finish_reason": None}),
        ("é日", {"prompt_tokens": 5, "completion_tokens": 2, "cached_tokens": 4, "finish_reason": {"type": "stop"}}),
    )
)


@pytest.mark.parametrize(("data", "usage"), [(MESSAGE, Usage(5, 2)), (GENERATED, Usage(5, 2, 4))])
def test_C11_streams_of_other_apis_cut_anywhere_come_out_whole_with_the_same_counts(data, usage):
    for place in range(len(data)):
        scanner = StreamScanner()
        assert b"".join((scanner.feed(data[:place]), scanner.feed(data[place:]), scanner.finish())) == data
        assert scanner.to_usage() == usage
        assert scanner.is_complete
        assert scanner.has_output
    for place in range(len(data) - 60):
        scanner = StreamScanner()
        scanner.feed(data[:place])
        scanner.finish()
        assert not scanner.is_complete


def test_anthropics_counts_are_summed_and_what_it_says_of_new_tokens_is_kept():
    said = {"input_tokens": 3, "output_tokens": 2, "cache_read_input_tokens": 4, "cache_creation_input_tokens": 5}
    assert read_usage(said) == Usage(12, 2, 4, 3)
    assert read_usage({"input_tokens": 3, "output_tokens": 2}) == Usage(3, 2)

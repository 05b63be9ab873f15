"""Streams in every form that engines send, cut anywhere: nothing is told of them that is not in them.

What is told at a glance, in chunks or in pieces, must leave a scanner as it is where it reads each event.
"""

import json
import math

from hypothesis import given
from hypothesis import strategies as st

from router.proxy.sse import StreamScanner

#: Words of the format among them, and what ends a text, a line or an event once it stands there unescaped.
TEXTS = st.text(max_size=6) | st.sampled_from(
    [
        *("", "a", "é", "🐦", "\\", "\\\\", '\\"', "\r\n", "[DONE]", '"usage"', '"error"', '{"error":{}}'),
        *('","finish_reason":"stop', "\n\ndata: [DONE]\n\n", '"}}]}\n\ndata: {"error":{"message":"x"}}\n\n'),
    ]
)
FINISHES = st.sampled_from([None] * 6 + ["stop", "length", "tool_calls"])
PLACES = st.sampled_from([0, 0, 0, 1])


def vllm_chat(text, finish, place):
    return {"id": "c", "choices": [{"index": place, "delta": {"content": text}, "finish_reason": finish}]}


def sglang_chat(text, finish, place):
    delta = {"content": text, "reasoning_content": None, "tool_calls": None}
    choice = {"index": place, "delta": delta, "logprobs": None, "finish_reason": finish, "matched_stop": None}
    return {"id": "c", "object": "chat.completion.chunk", "choices": [choice], "usage": None}


def reasoning(text, finish, place):
    delta = {"role": "assistant", "reasoning": text, "content": ""}
    return {"id": "c", "choices": [{"index": place, "delta": delta, "finish_reason": finish}]}


def tool_call(text, finish, place):
    calls = [{"index": 0, "id": "t", "function": {"name": "content", "arguments": text}}]
    return {"id": "c", "choices": [{"index": place, "delta": {"tool_calls": calls}, "finish_reason": finish}]}


def completion(text, finish, place):
    return {"id": "c", "choices": [{"text": text, "index": place, "finish_reason": finish, "stop_reason": None}]}


FORMS = st.sampled_from([vllm_chat, sglang_chat, reasoning, tool_call, completion])
OTHERS = st.sampled_from(
    [
        {"error": {"message": "x", "code": 400}},
        {"error": {"text": "x", "content": "y"}},
        {"error": None},
        {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}},
    ]
)
RAW = st.sampled_from([b"data: [DONE]\n\n", b": ping\n\n", b'data: {"a\n\n', b'event: x\ndata: {"id":"a"}\n\n'])


def encode(payload, *, is_compact, ascii_only):
    separators = (",", ":") if is_compact else None
    text = json.dumps(payload, separators=separators, ensure_ascii=ascii_only)
    return b"data: " + text.encode("utf-8", "surrogatepass") + b"\n\n"


@st.composite
def streams(draw):
    """Payloads, or bytes that are none, and the event of each."""
    form = draw(FORMS)
    options = {"is_compact": draw(st.booleans()), "ascii_only": draw(st.booleans())}
    is_crlf = draw(st.sampled_from([False] * 4 + [True]))
    events = []
    for kind in draw(st.lists(st.integers(0, 9), max_size=14)):
        if kind == 0:
            payload = event = draw(RAW)
        else:
            payload = (
                draw(OTHERS) if kind == 1 else form(draw(TEXTS), draw(FINISHES) if kind < 4 else None, draw(PLACES))
            )
            event = encode(payload, **options)
        events.append((payload, event.replace(b"\n", b"\r\n") if is_crlf else event))
    return events


def see(scanner):
    return (
        *(scanner.has_output, scanner.output_chunks, scanner.usage, scanner.is_done),
        *(scanner.has_error, scanner.error_status, scanner.is_complete),
    )


def find_truth(payloads, choices):
    """Whether there is an error in a stream, and whether it reached its end."""
    told = [payload for payload in payloads if isinstance(payload, dict)]
    finished = {choice["index"] for payload in told for choice in payload.get("choices", ()) if choice["finish_reason"]}
    is_done = b"[DONE]" in b"".join(payload for payload in payloads if isinstance(payload, bytes))
    return any(payload.get("error") for payload in told), is_done or len(finished) >= choices


def framed(events):
    return b"".join(b"%x\r\n%b\r\n" % (len(event), event) for event in events)


def cut(data, events):
    """The events in groups that come together, or their bytes in pieces that were cut anywhere."""
    if data.draw(st.booleans()):
        whole = b"".join(events)
        cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=12)))
        return [[whole[start:end]] for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True) if end > start]
    groups, left = [], list(events)
    while left:
        count = data.draw(st.integers(1, min(3, len(left))))
        groups.append(left[:count])
        left = left[count:]
    return groups


@given(streams(), st.booleans(), st.integers(1, 2), st.data())
def test_C11_a_glance_tells_nothing_that_reading_does_not(stream, drops, choices, data):
    glancing = StreamScanner(choices=choices, drop_usage_chunk=drops)
    reading = StreamScanner(choices=choices, drop_usage_chunk=drops)
    # Nothing is learned by it, so that nothing is alike.
    reading._lessons, reading._lesson_chunk = 0, math.inf
    events = [event for _, event in stream]
    passed = read = b""
    for group in cut(data, events):
        together = b"".join(group)
        is_taken = data.draw(st.booleans()) and glancing.feed_chunks(framed(group))
        passed += together if is_taken else glancing.feed(together)
        read += reading.feed(together)
        assert see(glancing) == see(reading)
    passed, read = passed + glancing.finish(), read + reading.finish()
    assert see(glancing) == see(reading)
    assert passed == read
    assert drops or passed == b"".join(events)
    assert (glancing.has_error, glancing.is_complete) == find_truth([payload for payload, _ in stream], choices)

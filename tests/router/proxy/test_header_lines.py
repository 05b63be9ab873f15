"""What crosses the router in either direction, and what never does."""

import pytest

from router.proxy.headers import (
    HeadersTooLargeError,
    check_header_size,
    request_headers,
    response_headers,
    text_headers,
)


def test_G04_the_clients_rank_never_stands_beside_the_routers():
    received = [
        (b"x-data-parallel-rank", b"99"),
        (b"x-data-parallel-rank", b"98"),
        (b"x-override-routed-dp-rank", b"7"),
    ]
    lines = request_headers(received, {b"x-data-parallel-rank": b"1"})
    assert [value for name, value in lines if b"rank" in name] == [b"1"]


def test_hop_by_hop_lines_stay_on_their_hop():
    received = [
        (b"connection", b"close, X-Private"),
        (b"x-private", b"1"),
        (b"transfer-encoding", b"chunked"),
        (b"te", b"trailers"),
        (b"upgrade", b"h2c"),
        (b"host", b"router"),
        (b"content-length", b"5"),
        (b"expect", b"100-continue"),
        (b"authorization", b"Bearer x"),
    ]
    assert request_headers(received, {}) == [(b"authorization", b"Bearer x"), (b"accept-encoding", b"identity")]


def test_lengths_and_the_workers_own_names_are_not_passed_back():
    received = [
        (b"Content-Length", b"9"),
        (b"Server", b"uvicorn"),
        (b"Content-Type", b"a/b"),
        (b"x-dovecote-dp-rank", b"5"),
    ]
    lines = response_headers(received, {b"x-dovecote-dp-rank": b"1"})
    assert lines == [(b"content-type", b"a/b"), (b"x-dovecote-dp-rank", b"1")]


def test_G07_too_many_or_too_long_lines_are_refused():
    check_header_size([(b"a", b"b")] * 100)
    for lines in ([(b"a", b"b")] * 10_000, [(b"a", b"b" * 10_000_000)]):
        with pytest.raises(HeadersTooLargeError):
            check_header_size(lines)


def test_of_repeated_lines_the_first_counts():
    assert text_headers([(b"x-session-id", b"a"), (b"x-session-id", b"b"), (b"n", b"\xe9")]) == {
        "x-session-id": "a",
        "n": "é",
    }

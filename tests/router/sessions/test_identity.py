"""Sessions are found where agents really name them, in a fixed order, and never from untidy names."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.sessions.identity import (
    MAX_NAME_CHARS,
    MAX_RAW_CHARS,
    NO_SESSION,
    SessionIdentity,
    clean_name,
    find_session,
)

CLAUDE = "3f0c9d2e-6f0a-4f57-9b5b-0c7a2f0c1e11"
CODEX = "019a3c5e-7b1d-7e60-b3a5-5a1c9f7e2d44"
USER = "user_" + "5f" * 32


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"X-Dovecote-Session": "s", "X-Dovecote-Parent": "p"}, ("s", "p", "x-dovecote-session")),
        (
            {"x-claude-code-session-id": CLAUDE, "user-agent": "claude-cli/2.0.76 (external, cli)"},
            (CLAUDE, None, "x-claude-code-session-id"),
        ),
        (
            {"X-Claude-Code-Session-Id": CLAUDE, "X-Claude-Code-Agent-Id": "a7"},
            (f"{CLAUDE}/a7", CLAUDE, "x-claude-code-session-id"),
        ),
        (
            {
                "X-Claude-Code-Session-Id": CLAUDE,
                "X-Claude-Code-Agent-Id": "a9",
                "X-Claude-Code-Parent-Agent-Id": "a7",
            },
            (f"{CLAUDE}/a9", f"{CLAUDE}/a7", "x-claude-code-session-id"),
        ),
        (
            {"X-Dynamo-Session-ID": "run-1:sub", "X-Dynamo-Parent-Session-ID": "run-1", "X-Dynamo-Session-Final": "1"},
            ("run-1:sub", "run-1", "x-dynamo-session-id"),
        ),
        ({"X-Session-ID": "abc"}, ("abc", None, "x-session-id")),
        (
            {"x-session-id": "ses_6fda", "x-parent-session-id": "ses_6fd0", "user-agent": "opencode/1.0"},
            ("ses_6fda", "ses_6fd0", "x-session-id"),
        ),
        ({"X-SMG-Routing-Key": "user-42"}, ("user-42", None, "x-smg-routing-key")),
        ({"session-id": CODEX, "originator": "codex_cli_rs"}, (CODEX, None, "session-id")),
        ({"session_id": CODEX, "originator": "codex_cli_rs"}, (CODEX, None, "session_id")),
    ],
)
def test_a_session_is_found_in_the_headers_that_agents_send(headers, expected):
    assert find_session(headers, {}) == SessionIdentity(*expected)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"session_id": "s"}, ("s", "session_id")),
        ({"prompt_cache_key": CODEX, "model": "m"}, (CODEX, "prompt_cache_key")),
        ({"previous_response_id": "resp_68e1"}, ("resp_68e1", "previous_response_id")),
        (
            {"metadata": {"user_id": f"{USER}_account__session_{CLAUDE}"}},
            (CLAUDE, "metadata.user_id"),
        ),
        (
            {"metadata": {"user_id": json.dumps({"device_id": "d" * 64, "account_uuid": "", "session_id": CLAUDE})}},
            (CLAUDE, "metadata.user_id"),
        ),
        ({"metadata": {"user_id": '{"device_id": "d"}'}}, ('{"device_id": "d"}', "metadata.user_id")),
        ({"metadata": {"user_id": "{no json"}}, ("{no json", "metadata.user_id")),
        ({"metadata": {"user_id": "user-7"}}, ("user-7", "metadata.user_id")),
        ({"metadata": {"user_id": "user-7_session_"}}, ("user-7_session_", "metadata.user_id")),
    ],
)
def test_a_session_is_found_in_the_body(body, expected):
    session, source = expected
    assert find_session({}, body) == SessionIdentity(session, None, source)


def test_the_first_source_of_the_order_wins():
    headers = {
        "X-Dovecote-Session": "1",
        "X-Claude-Code-Session-Id": "2",
        "X-Dynamo-Session-ID": "3",
        "X-Session-ID": "4",
        "X-SMG-Routing-Key": "5",
        "Session-Id": "6",
        "session_id": "7",
    }
    body = {"session_id": "8", "prompt_cache_key": "9", "previous_response_id": "10", "metadata": {"user_id": "11"}}
    seen = []
    while headers or body:
        session = find_session(headers, body).session
        seen.append(session)
        for place in (headers, body):
            for name in [name for name, value in place.items() if value in (session, {"user_id": session})]:
                del place[name]
    assert seen == [str(n) for n in range(1, 12)]


def test_a_source_that_is_blank_gives_way_to_the_next():
    assert find_session({"X-Dovecote-Session": "  ", "X-Session-ID": "s"}, {}).session == "s"
    assert find_session({"X-Session-ID": ""}, {"session_id": "b"}).session == "b"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"session_id": 7},
        {"session_id": None},
        {"session_id": ["a"]},
        {"metadata": "x"},
        {"metadata": {"user_id": {}}},
    ],
)
def test_a_request_that_names_nothing_has_no_session(body):
    assert find_session({"authorization": "Bearer x"}, body) == NO_SESSION


def test_a_session_is_not_its_own_parent():
    assert find_session({"X-Dovecote-Session": "s", "X-Dovecote-Parent": "s"}, {}).parent is None


def test_an_agent_of_a_long_session_keeps_a_name_within_the_limit():
    headers = {"X-Claude-Code-Session-Id": "s" * 200, "X-Claude-Code-Agent-Id": "a" * 200}
    found = find_session(headers, {})
    assert len(found.session) <= MAX_NAME_CHARS
    assert found.parent == "s" * 200


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("  a b ", "a b"),
        ("a\r\nx: y\x00", "ax: y"),
        ("\u202eevil", "evil"),
        ("\ud800", None),
        ("", None),
        (None, None),
        (7, None),
        ("x" * (MAX_RAW_CHARS + 1), None),
    ],
)
def test_names_are_tidied(value, name):
    assert clean_name(value) == name


def test_long_names_stay_different():
    one, other = clean_name("x" * 500 + "1"), clean_name("x" * 500 + "2")
    assert one != other
    assert one.startswith("sha256:")
    assert len(one) == 71


plain = st.none() | st.booleans() | st.integers() | st.text()
bodies = st.dictionaries(
    st.sampled_from(["session_id", "prompt_cache_key", "previous_response_id", "metadata", "x"]),
    plain
    | st.dictionaries(st.sampled_from(["user_id", "y"]), plain | st.sampled_from(["{}", "[1]", "{" * 9, "_session_"])),
)


@settings(deadline=None)
@given(
    headers=st.dictionaries(st.sampled_from(["X-Session-ID", "x-claude-code-session-id", "y"]), st.text()), body=bodies
)
def test_any_header_and_body_gives_a_tidy_name_or_none(headers, body):
    found = find_session(headers, body)
    if found.session is None:
        assert found == NO_SESSION
    else:
        assert found.session == clean_name(found.session)
        assert 0 < len(found.session) <= MAX_NAME_CHARS


def test_a_user_id_nested_too_deep_is_taken_as_it_is():
    user = '{"a":' * 3_000
    assert find_session({}, {"metadata": {"user_id": user}}).session == clean_name(user)


def test_a_user_id_that_packs_no_object_is_taken_as_it_is():
    assert find_session({}, {"metadata": {"user_id": "[1]"}}).session == "[1]"

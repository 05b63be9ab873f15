"""Nothing passes that is not known to be open, a client's or an admin's with such a key."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.access import OPERATOR, AccessGate, Key, KeyRing, Principal, Role
from router.access.gate import PASSER_BY, Refusal, find_secret
from router.access.principal import ANONYMOUS

SECRETS = {role: f"{role.value}-{'x' * 32}".encode() for role in Role}
RING = KeyRing(
    Key(hashlib.sha256(secret).digest(), Principal(name=role.value, role=role)) for role, secret in SECRETS.items()
)
CLIENT_PATHS = {"/v1/chat/completions", "/v1/models"}


def gate(anonymous=None, ring=RING):
    return AccessGate(ring, anonymous=anonymous, is_client_path=CLIENT_PATHS.__contains__, open_paths=("/health",))


def judge(path, role=None, anonymous=None):
    headers = [] if role is None else [(b"authorization", b"Bearer " + SECRETS[role])]
    return gate(anonymous).judge(path, headers)


@given(path=st.text(max_size=40).map(lambda tail: "/" + tail))
def test_an_unknown_path_is_for_admins_alone(path):
    if path in CLIENT_PATHS or path in {"/health", "/metrics"}:
        return
    assert judge(path) is Refusal.MISSING_KEY
    assert judge(path, Role.CLIENT) is Refusal.FORBIDDEN
    assert judge(path, Role.METRICS) is Refusal.FORBIDDEN
    assert judge(path, Role.ADMIN).name == "admin"


def test_each_role_has_its_paths():
    assert judge("/v1/models", Role.CLIENT).name == "client"
    assert judge("/v1/models", Role.METRICS) is Refusal.FORBIDDEN
    assert judge("/metrics", Role.METRICS).name == "metrics"
    assert judge("/metrics", Role.CLIENT) is Refusal.FORBIDDEN
    assert judge("/v1/models", Role.ADMIN).role is Role.ADMIN


@pytest.mark.parametrize("path", ["/health/", "//health", "/Health", "/health/../v1/workers", "/health%2f", "/health?"])
def test_an_open_path_is_open_as_it_is_spelled(path):
    assert judge("/health") is PASSER_BY
    assert judge(path) is Refusal.MISSING_KEY


def test_beside_keys_anonymous_callers_are_clients():
    assert judge("/v1/models", anonymous=ANONYMOUS) is ANONYMOUS
    assert judge("/v1/workers", anonymous=ANONYMOUS) is Refusal.MISSING_KEY
    assert judge("/v1/workers", Role.ADMIN, anonymous=ANONYMOUS).role is Role.ADMIN
    unknown = [(b"authorization", b"Bearer EMPTY")]
    assert gate(ANONYMOUS).judge("/v1/models", unknown) is ANONYMOUS
    assert gate().judge("/v1/models", unknown) is Refusal.INVALID_KEY


def test_without_keys_every_caller_is_the_operator_whatever_it_sends():
    everyone = gate(OPERATOR, KeyRing())
    assert everyone.judge("/v1/workers", [(b"authorization", b"Bearer engine-key")]) is OPERATOR


def test_a_file_of_keys_that_has_none_lets_nobody_in():
    assert gate(None, KeyRing()).judge("/v1/models", [(b"x-api-key", SECRETS[Role.ADMIN])]) is Refusal.INVALID_KEY


@pytest.mark.parametrize(
    ("headers", "secret"),
    [
        ([], None),
        ([(b"authorization", b"Bearer k")], b"k"),
        ([(b"authorization", b"bEaReR   k ")], b"k"),
        ([(b"x-api-key", b"k")], b"k"),
        ([(b"x-api-key", b"k"), (b"authorization", b"Bearer k")], b"k"),
        ([(b"x-api-key", b"k"), (b"authorization", b"Bearer other")], b""),
        ([(b"authorization", b"Bearer other"), (b"authorization", b"Bearer k")], b""),
        ([(b"authorization", b"Basic azpr")], b""),
        ([(b"authorization", b"")], b""),
    ],
)
def test_a_key_comes_in_the_lines_that_clients_send(headers, secret):
    assert find_secret(headers) == secret

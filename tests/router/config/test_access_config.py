"""The `access:` section: what is refused, and that no secret is ever shown."""

import pytest

from router.access import Role
from router.access.keys import hash_key
from router.config.access import is_loopback, load_keys
from router.config.fleet import build_fleet_config, load_fleet_config
from router.errors import ConfigError

ONE = {"workers": [{"url": "http://a:1"}]}
SECRET = "dvk_" + "s" * 43
HASH = hash_key(SECRET)


def refuse(**sections):
    with pytest.raises(ConfigError) as refused:
        build_fleet_config(ONE | sections, "fleet.yaml")
    return refused.value.message


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "router.example"])
def test_without_keys_a_router_does_not_listen_beyond_loopback(host):
    assert refuse(listen={"host": host}).startswith(f"fleet.yaml: listen.host: '{host}': whoever reaches this address")
    for access in ({"anonymous": True}, {"keys": [{"name": "k", "hash": HASH}]}, {"keys_file": "keys.yaml"}):
        build_fleet_config(ONE | {"listen": {"host": host}, "access": access}, "fleet.yaml")


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True), ("127.1.2.3", True), ("::1", True), ("[::1]", True), ("localhost", True),
        ("0.0.0.0", False), ("localhost.example", False),
    ],
)  # fmt: skip
def test_loopback_is_told_by_the_address(host, expected):
    assert is_loopback(host) is expected


@pytest.mark.parametrize(
    ("access", "where"),
    [
        ({"keys": [{"name": "k", "hash": SECRET}]}, "access.keys.0.hash: needs sha256: and 64"),
        ({"keys": [{"name": "k", "key": SECRET}]}, "access.keys.0.key: unknown key"),
        ({"keys": [{"name": "k", "hash": [SECRET]}]}, "access.keys.0.hash: "),
        ({"keys": [{"name": SECRET * 2, "hash": HASH}]}, "access.keys.0.name: "),
        ({"keys": [{"name": "k", "hash": HASH}, {"name": "k", "hash": hash_key(SECRET * 2)}]}, "access.keys.1.name: "),
        ({"keys": [{"name": "k", "hash": HASH}, {"name": "l", "hash": HASH}]}, "access.keys.1.hash: the same hash"),
        ({"keys": [{"name": "anonymous", "hash": HASH}]}, "access.keys.0.name: anonymous, none, unknown are words"),
        ({"salt_secret": SECRET[:20]}, "access.salt_secret: has fewer than 32 characters"),
        ({"salt_secret": [SECRET]}, "access.salt_secret: "),
        ({"salt_secret": SECRET, "salt_secret_file": "f"}, "access.salt_secret: stands in salt_secret_file as well"),
        ({"open_paths": ["health"]}, "access.open_paths.0: a path starts with /"),
        (SECRET, "access: "),
    ],
)
def test_a_wrong_section_is_refused_without_its_values(access, where):
    message = refuse(access=access)
    assert message.startswith("fleet.yaml: " + where)
    assert SECRET[:20] not in message


def test_no_secret_is_shown_of_the_environment():
    environment = {"DOVECOTE__ACCESS__SALT_SECRET": f"[{SECRET}"}
    with pytest.raises(ConfigError) as refused:
        build_fleet_config(ONE, "fleet.yaml", environment)
    assert SECRET not in refused.value.message


@pytest.mark.parametrize(
    "text",
    [
        "workers: {url: 'http://a', api_key: SECRET}",
        "workers: [{url: 'http://a', cache: {api_key: SECRET, more: [{password: SECRET}]}, id: [SECRET_NOT]}]",
        "redis: 'redis://user:SECRET@host:6379/0'",
        "redis: ['rediss://:SECRET@host']",
        "listen: [{tls: {key_password: SECRET}}]",
        "workers: ['http://user:SECRET@host']",
    ],
)
def test_no_secret_is_shown_where_it_stands_in_the_wrong_place(text):
    with pytest.raises(ConfigError) as caught:
        load_fleet_config(text.replace("SECRET_NOT", "5").replace("SECRET", SECRET), "fleet.yaml")
    assert SECRET not in caught.value.message
    assert "fleet.yaml: " in caught.value.message


def test_no_secret_stands_in_a_dump_or_a_representation():
    config = build_fleet_config(ONE | {"access": {"salt_secret": SECRET}}, "fleet.yaml")
    assert SECRET not in repr(config) + str(config.model_dump()) + config.model_dump_json()


def test_a_key_says_what_it_may():
    text = f"""
workers: [{{url: "http://a:1"}}]
access:
  keys:
    - {{name: ci, hash: "{HASH}", tenant: research, role: client, trusted: true, models: [toy],
       limits: {{requests_per_minute: 60, tokens_per_minute: 1000, concurrent_requests: 4, body_bytes: 100}}}}
"""
    (key,) = load_fleet_config(text, "fleet.yaml").access.keys
    principal = key.to_key().principal
    assert (principal.name, principal.tenant, principal.is_trusted, principal.role) == (
        "ci", "research", True, Role.CLIENT,
    )  # fmt: skip
    assert principal.may_ask_for("toy")
    assert not principal.may_ask_for("other")
    assert principal.limits.concurrent_requests == 4


def test_a_key_is_a_tenant_of_its_own_unless_told():
    (key,) = load_keys(f"keys: [{{name: k, hash: '{HASH}'}}]", "keys.yaml")
    assert key.principal.tenant == "k"


@pytest.mark.parametrize("text", ["- a", "keys: 1", "kyes: []", "keys: [{name: k}]", ": :"])
def test_a_wrong_file_of_keys_is_refused(text):
    with pytest.raises(ConfigError) as refused:
        load_keys(text, "keys.yaml")
    assert refused.value.message.startswith("keys.yaml: ")


def test_a_file_of_keys_without_any_is_good():
    assert load_keys("", "keys.yaml") == ()

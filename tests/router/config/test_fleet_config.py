"""A configuration is taken whole or refused whole, and the refusal says where and what would be valid."""

from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

from prefix_index.layout import GroupLayout, Layout
from router.config.docs import describe_fleet_schema
from router.config.fleet import FleetConfig, build_fleet_config, load_fleet_config
from router.config.policy import PolicyName
from router.config.sources import apply_environment
from router.config.text import MAX_TEXT_CHARS
from router.config.workers import EventsMode, EventSource
from router.errors import ConfigError
from router.fleet.tiers import TierLinks

ONE = 'workers: [{url: "http://a:1"}]\n'
POLICIES = ", ".join(name.value for name in PolicyName)
KEYS = ", ".join(sorted(FleetConfig.model_fields))
EXAMPLE = Path(__file__).parents[3] / "examples" / "fleet.yaml"


def load(text, environment=None):
    return load_fleet_config(text, "fleet.yaml", environment)


def refusal(text, environment=None):
    with pytest.raises(ConfigError) as caught:
        load(text, environment)
    return str(caught.value)


def test_only_workers_are_needed_and_the_rest_has_defaults():
    config = load(ONE)
    assert config.listen.host == "127.0.0.1"
    assert config.policy.name is PolicyName.CACHE_AFFINITY
    assert config.limits.body_bytes == 64 * 1024 * 1024
    assert config.workers[0].events is EventsMode.AUTO
    assert config.tokenizer is None


def test_the_example_says_the_defaults():
    config = load(EXAMPLE.read_text(encoding="utf-8"))
    assert config == FleetConfig(workers=config.workers)
    assert [worker.worker_id for worker in config.workers] == ["engine-a", "engine-b"]


def test_the_comments_of_the_example_are_valid_keys_too():
    text = EXAMPLE.read_text(encoding="utf-8")
    for line in (
        "# model: ",
        "# tokenizer:",
        "#   path: ",
        "# events:",
        "#   endpoint:",
        "#   replay_endpoint:",
        "#   topic:",
    ):
        assert line in text
        text = text.replace(line, line.replace("# ", "", 1).replace("#   ", "  "))
    config = load(text)
    assert config.workers[1].events == EventSource(
        endpoint="tcp://127.0.0.1:5557", replay_endpoint="tcp://127.0.0.1:5567"
    )
    assert config.tokenizer.path == "/models/my-model"


def test_json_is_taken_as_well():
    assert load('{"workers": [{"url": "http://a:1"}], "listen": {"port": 9}}').listen.port == 9


def test_a_configuration_cannot_be_changed():
    with pytest.raises(ValidationError):
        load(ONE).listen.port = 1


@pytest.mark.parametrize("word", ["off", "'off'", "false"])
def test_events_can_be_switched_off_as_yaml_reads_it(word):
    assert load(f'workers: [{{url: "http://a:1", events: {word}}}]').workers[0].events is EventsMode.OFF


def test_a_worker_is_named_by_host_and_port_unless_it_has_a_name():
    config = load('workers: [{url: "http://a:1/"}, {url: "http://[::1]:2/base/", id: second}]')
    assert [worker.worker_id for worker in config.workers] == ["a:1", "second"]
    assert config.workers[1].url == "http://[::1]:2/base"


def test_what_lies_behind_a_workers_cache_is_for_index_and_cost():
    text = """
workers:
  - url: http://a:1
    cache:
      host: h
      pools: [p]
      pool_bytes_per_s: 1.0e+9
      layout: [{kind: full_attention, bytes_per_token: 10}, {kind: mamba, checkpoint_bytes: 7, checkpoint_tokens: 64}]
"""
    (worker,) = load(text).workers
    assert worker.cache.to_links() == TierLinks(pool_bytes_per_s=1e9)
    assert worker.cache.to_layout() == Layout(
        (
            GroupLayout(kind="full_attention", bytes_per_token=10),
            GroupLayout(kind="mamba", checkpoint_bytes=7, checkpoint_tokens=64),
        )
    )
    assert load(ONE).workers[0].cache.to_layout() is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "fleet.yaml: workers: no worker given: use --workers URL or `workers:` in --config"),
        ("workers: []", "fleet.yaml: workers: no worker given: use --workers URL or `workers:` in --config"),
        (
            "- a",
            "fleet.yaml: ['a']: the top must be a mapping with keys such as workers, policy, listen",
        ),
        (
            ONE + "polcy: {}",
            f"fleet.yaml: polcy: {{}}: unknown key; did you mean 'policy'? valid here: {KEYS}",
        ),
        (
            ONE + "policy: {weights: {zeal: 1}}",
            (
                "fleet.yaml: policy.weights.zeal: 1: unknown key; "
                "valid here: admission, balance, decode, returns, reuse, settle, spread, stall, transfer, wait"
            ),
        ),
        (
            'workers: [{url: "http://a:1", events: {endpoit: 3}}]',
            (
                "fleet.yaml: workers.0.events.endpoit: 3: unknown key; did you mean 'endpoint'? valid here: binds, "
                "endpoint, replay_endpoint, topic"
            ),
        ),
        (
            'workers: [{url: "http://a:1", cache: {layout: [{kind: odd}]}}]',
            (
                "fleet.yaml: workers.0.cache.layout.0.kind: 'odd': valid kinds: full_attention, mla_attention, "
                "sliding_window (with window_tokens), mamba"
            ),
        ),
        (
            ONE + "redis: {url: 'http://:hidden@h'}",
            "fleet.yaml: redis.url: '(not shown)': a Redis URL looks like redis://host:6379/0",
        ),
        (ONE + "listen: {port: 65536}", "fleet.yaml: listen.port: 65536: Input should be less than or equal to 65535"),
        (ONE + "listen: {port: -1}", "fleet.yaml: listen.port: -1: Input should be greater than or equal to 0"),
        (ONE + "listen: {port: true}", "fleet.yaml: listen.port: True: needs a whole number"),
        (
            ONE + "policy: {weights: {wait: .nan}}",
            "fleet.yaml: policy.weights.wait: nan: Input should be a finite number",
        ),
        (
            ONE + "policy: {weights: {wait: .inf}}",
            "fleet.yaml: policy.weights.wait: inf: Input should be a finite number",
        ),
        (
            ONE + "policy: {weights: {wait: -1}}",
            "fleet.yaml: policy.weights.wait: -1: Input should be greater than or equal to 0",
        ),
        (
            ONE + "policy: {name: cache_afinity}",
            ("fleet.yaml: policy.name: 'cache_afinity': did you mean 'cache_affinity'? valid here: " + POLICIES),
        ),
        (
            ONE + "policy: {name: 7}",
            "fleet.yaml: policy.name: 7: valid here: " + POLICIES,
        ),
        (
            'listen: {port: 9000}\nworkers: [{url: "http://a:9000"}, {url: "http://localhost:9000"}]',
            (
                "fleet.yaml: workers.1.url: 'http://localhost:9000': this is where the router itself listens "
                "(listen.port); an engine has an address of its own"
            ),
        ),
        (
            'workers: [{url: "http://a:1"}, {url: "http://b:1"}, {url: "http://A:1/", id: x}]',
            "fleet.yaml: workers.2.url: 'http://a:1': the same url as workers.0; each worker is listed once",
        ),
        (
            'workers: [{url: "http://a:1", id: x}, {url: "http://b:1", id: x}]',
            "fleet.yaml: workers.1.id: 'x': the same id as workers.0; each worker is listed once",
        ),
        (
            'workers: [{url: "http://a:1", events: maybe}]',
            "fleet.yaml: workers.0.events: 'maybe': Input should be 'auto' or 'off'",
        ),
        ("workers: [{}]", "fleet.yaml: workers.0.url: Field required"),
        ("workers: {url: x}", "fleet.yaml: workers: {'url': 'x'}: needs a list; [] is an empty one"),
        ("workers: [{url: 5}]", "fleet.yaml: workers.0.url: 5: needs text; put it in quotes"),
        (
            "discovery: {file: {path: w.yaml}}\nadmission: [{workers: [w], max_requests: 1}]",
            "fleet.yaml: admission.0.workers.0: 'w': `workers` of this file has none of that id; nothing is valid here",
        ),
        ("workers: [7]", "fleet.yaml: workers.0: 7: needs a mapping"),
        (
            "a: 1\na: 2",
            "fleet.yaml: line 2: no valid YAML: key 'a' stands twice",
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_place_its_value_and_what_would_be_valid(text, message):
    assert refusal(text) == message


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("a:1", "needs http:// or https:// and a host"),
        ("ftp://a:1", "needs http:// or https:// and a host"),
        ("http://:1", "needs http:// or https:// and a host"),
        ("http://a:99999", "Port out of range 0-65535"),
        ("http://a:0", "port out of range 1-65535"),
        ("http://a:x", "Port could not be cast to integer value as 'x'"),
        ("http://a b:1", "blanks and control characters do not belong in a URL"),
        ("http://a:1/?q=1", "query, fragment and user name do not belong in it"),
        ("http://user:word@a:1", "query, fragment and user name do not belong in it"),
        ("http://[::1:5", "Invalid IPv6 URL"),
    ],
)
def test_a_url_that_is_no_workers_is_refused(url, problem):
    message = refusal(f"workers: [{{url: {url!r}}}]")
    shown = url.replace("user:word", "(not shown)")
    assert message.startswith(f"fleet.yaml: workers.0.url: {shown!r}: {problem}")
    assert message.endswith("a worker URL looks like http://host:30000")


@pytest.mark.parametrize(
    "text",
    ["{", "a: [", "\x00", "!!python/object:os.system {}", "a: !!timestamp 99999-1-1", "!!bool x", "!!int ''", "? {}"],
)
def test_text_that_is_no_yaml_is_refused(text):
    message = refusal(text)
    assert "no valid YAML: " in message
    assert "\n" not in message
    assert "examples/" not in message


@pytest.mark.parametrize(
    ("host", "port", "url", "is_own"),
    [
        ("127.0.0.1", 9000, "http://127.0.0.1:9000", True),
        ("127.0.0.1", 9000, "http://localhost:9000", True),
        ("0.0.0.0", 9000, "http://127.0.0.1:9000", True),
        ("10.0.0.5", 9000, "http://10.0.0.5:9000", True),
        ("127.0.0.1", 9000, "http://127.0.0.1:9001", False),
        ("127.0.0.1", 9000, "http://127.0.0.2:9000", False),
        ("10.0.0.5", 9000, "http://127.0.0.1:9000", False),
        ("127.0.0.1", 0, "http://127.0.0.1:9000", False),
    ],
)
def test_a_worker_that_is_plainly_the_router_itself_is_refused(host, port, url, is_own):
    values = {"listen": {"host": host, "port": port}, "access": {"anonymous": True}, "workers": [{"url": url}]}
    if not is_own:
        assert build_fleet_config(values, "fleet.yaml").workers[0].url == url
        return
    with pytest.raises(ConfigError, match="where the router itself listens"):
        build_fleet_config(values, "fleet.yaml")


def test_text_nested_too_deep_or_too_long_is_refused():
    assert refusal("[" * 20_000) == "fleet.yaml: no valid YAML: nested too deep"
    assert refusal("#" * (MAX_TEXT_CHARS + 1)) == (
        "fleet.yaml: '4,194,305 characters': longer than 4,194,304 characters"
    )


def test_a_value_that_expands_without_end_is_shown_in_part():
    nested = [
        "&a [x, x]",
        *(f"&{new} [{', '.join([f'*{old}'] * 9)}]" for old, new in zip("abcdefghijk", "bcdefghijkl", strict=True)),
    ]
    assert len(refusal(ONE + f"listen: {{host: [{', '.join(nested)}]}}")) < 400


def test_a_long_value_is_shown_in_part():
    message = refusal(ONE + f"listen: {{host: {[1] * 500}}}")
    assert len(message) < 250


def test_the_error_carries_its_parts():
    with pytest.raises(ConfigError) as caught:
        load(ONE + "listen: {port: 70000}")
    error = caught.value
    assert (error.file_name, error.key_path, error.value) == ("fleet.yaml", "listen.port", 70_000)


def test_the_environment_overrides_the_file():
    environment = {
        "DOVECOTE__LISTEN__PORT": "9000",
        "DOVECOTE__POLICY__WEIGHTS__WAIT": "2.5",
        "DOVECOTE__WORKERS__0__URL": "http://b:2",
        "DOVECOTE__MODEL": "toy",
        "HOME": "/root",
    }
    config = load(ONE + "listen: {host: 0.0.0.0}\naccess: {anonymous: true}", environment)
    assert (config.listen.host, config.listen.port) == ("0.0.0.0", 9_000)
    assert config.policy.weights.wait == 2.5
    assert config.workers[0].url == "http://b:2"
    assert config.model == "toy"


def test_the_environment_can_give_the_workers_whole():
    assert len(load("", {"DOVECOTE__WORKERS": "[{url: 'http://a:1'}, {url: 'http://b:1'}]"}).workers) == 2


def test_overriding_leaves_its_arguments_alone():
    data = yaml.safe_load(ONE)
    merged = apply_environment(data, {"DOVECOTE__WORKERS__0__URL": "x"})
    assert data == yaml.safe_load(ONE)
    assert merged["workers"] == [{"url": "x"}]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("DOVECOTE__LISTEN__PROT", "1", "environment: DOVECOTE__LISTEN__PROT: 1: unknown key; did you mean 'port'?"),
        ("DOVECOTE__LISTEN__PORT", "x", "environment: DOVECOTE__LISTEN__PORT: 'x': needs a whole number"),
        ("DOVECOTE__MODEL", "{", "environment: DOVECOTE__MODEL: '{': no valid YAML: "),
        ("DOVECOTE__WORKERS__1__URL", "x", "environment: DOVECOTE__WORKERS__1__URL: 'x': there is nothing at '1'"),
        (
            "DOVECOTE__WORKERS",
            "[{url: x}]",
            "environment: DOVECOTE__WORKERS: 'x': needs http:// or https:// and a host",
        ),
        ("DOVECOTE__WORKERS__A", "x", "environment: DOVECOTE__WORKERS__A: 'x': there is nothing at 'a'"),
        (
            "DOVECOTE__WORKERS__0__URL__X",
            "x",
            "environment: DOVECOTE__WORKERS__0__URL__X: 'x': there is nothing at 'x'",
        ),
    ],
)
def test_a_variable_that_cannot_be_used_is_refused(name, value, message):
    assert refusal(ONE, {name: value}).startswith(message)


def test_a_mistake_is_told_of_the_source_that_made_it():
    environment = {"DOVECOTE__LISTEN__HOST": "h", "DOVECOTE__LISTEN__PORT": "9"}
    with pytest.raises(ConfigError, match=r"^command line: listen\.port: 70000: Input should be less"):
        load_fleet_config(ONE, "fleet.yaml", environment, {"listen": {"port": 70_000}})
    with pytest.raises(ConfigError, match=r"^fleet\.yaml: listen\.prt: 1: unknown key"):
        load_fleet_config(ONE + "listen: {prt: 1}", "fleet.yaml", environment, {"listen": {"port": 7}})


def test_values_already_parsed_are_taken_too():
    assert build_fleet_config({"workers": [{"url": "http://a:1"}]}, "command line").workers[0].worker_id == "a:1"


def test_the_schema_describes_every_section():
    schema = describe_fleet_schema()
    assert set(schema["properties"]) == set(FleetConfig.model_fields)
    assert schema["additionalProperties"] is False
    assert "required" not in schema

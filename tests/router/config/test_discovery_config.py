"""Who else names workers: checked when the configuration is loaded, and every refusal names the key."""

import subprocess
import sys

import pytest

from router.config.discovery import load_workers
from router.config.fleet import build_fleet_config
from router.errors import ConfigError
from tests.waiting import PATIENCE_S

ONE = {"workers": [{"url": "http://h:1"}]}


def refusal(**sections):
    with pytest.raises(ConfigError) as caught:
        build_fleet_config(ONE | sections, "fleet.yaml")
    return caught.value


@pytest.mark.parametrize(
    ("sections", "key", "words"),
    [
        ({"registration": {}}, "registration.hosts", "nobody could register"),
        ({"registration": {"cidrs": ["10.0.0.0/8", "10.0.0.1/8"]}}, "registration.cidrs", "host bits"),
        ({"registration": {"hosts": ["h"], "ports": [70_000]}}, "registration.ports.0", "65535"),
        ({"discovery": {"kubernetes": [{"service": "Bad Name"}]}}, "discovery.kubernetes.0.service", "match"),
        ({"discovery": {"kubernetes": [{"service": "a"}, {"service": "a"}]}}, "discovery.kubernetes.1.service", "once"),
        ({"discovery": {"kubernetes": [{"service": "a", "api_url": "x"}]}}, "discovery.kubernetes.0.api_url", "http"),
        ({"discovery": {"file": {"path": ""}}}, "discovery.file.path", "character"),
        ({"breaker": {"window": 5, "window_failures": 6}}, "breaker.window_failures", "more than window"),
        ({"breaker": {"open_s": 9.0, "max_open_s": 1.0}}, "breaker.open_s", "more than max_open_s"),
        ({"breaker": {"window": 9_999}}, "breaker.window", "at most 1024"),
        ({"shutdown": {"wait_s": -1.0}}, "shutdown.wait_s", "greater than or equal to 0"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_meant_is_named(sections, key, words):
    error = refusal(**sections)
    assert error.key_path.startswith(key)
    assert words in error.message


@pytest.mark.parametrize("found", [{"registration": {"hosts": ["h"]}}, {"discovery": {"file": {"path": "w.yaml"}}}])
def test_workers_may_be_left_out_where_someone_else_names_some(found):
    assert build_fleet_config(found, "fleet.yaml").workers == ()


def test_D13_lists_that_do_not_fit_together_cannot_be_written_and_every_mistake_names_its_field():
    for workers, key in (
        ([{"url": "http://h:1"}, {"url": "http://h:1"}], "workers.1.url"),
        ([{"url": "http://h:1", "id": "a"}, {"url": "http://h:2", "id": "a"}], "workers.1.id"),
        ([{"url": "http://h:1", "models": ["m"]}], "workers.0.models"),
        ([{"url": "http://h:1", "dp_size": "2"}], "workers.0.dp_size"),
        (["http://h:1"], "workers.0"),
        ("http://h:1,http://h:2", "workers"),
    ):
        with pytest.raises(ConfigError) as caught:
            build_fleet_config({"workers": workers}, "fleet.yaml")
        assert caught.value.key_path == key
        with pytest.raises(ConfigError):
            load_workers(f"workers: {workers!r}\n", "workers.yaml")


def test_D13_without_assertions_a_mistake_is_refused_alike(tmp_path):
    path = tmp_path / "fleet.yaml"
    path.write_text("workers: [{url: 'http://h:1', id: a}, {url: 'http://h:2', id: a}]\n")
    command = [sys.executable, "-O", "-m", "router", "check-config", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 2
    assert "workers.1.id" in done.stderr

"""A line of the log as JSON has the event's fields by their template, whatever stands in the values."""

import ast
import json
import logging
from pathlib import Path

import pytest

from router.logs import MAX_VALUE_CHARS, JsonFormatter, read_template

ROOT = Path(__file__).parents[2]


def line(message, *arguments, level=logging.INFO, exc_info=None):
    record = logging.LogRecord("dovecote.test", level, "file", 1, message, arguments, exc_info)
    return json.loads(JsonFormatter().format(record))


def test_an_event_has_its_fields_and_numbers_stay_numbers():
    told = line("ended request=%s outcome=%s duration_s=%.3f", "r1", "done", 0.25)
    assert told["time"].endswith("+00:00")
    assert {key: told[key] for key in told if key != "time"} == {
        "level": "info", "logger": "dovecote.test", "event": "ended", "request": "r1", "outcome": "done",
        "duration_s": 0.25,
    }  # fmt: skip


def test_a_value_makes_no_field_and_no_line():
    told = line("request_error code=%s message=%r", "x", 'a" level=error\nsecond={"event": "forged"}')
    assert told["message"] == 'a" level=error\nsecond={"event": "forged"}'
    assert set(told) == {"time", "level", "logger", "event", "code", "message"}
    assert "\n" not in JsonFormatter().format(logging.LogRecord("l", 20, "f", 1, "x a=%s", ("1\n2",), None))


def test_words_of_the_template_are_values_too():
    told = line("policy_refused file=%s effect='the old policy stays'", "p.yaml")
    assert (told["file"], told["effect"]) == ("p.yaml", "the old policy stays")


@pytest.mark.parametrize("message", ["Started server process [%d]", "no event", "%s", "a b=%s c"])
def test_what_is_no_event_is_a_message(message):
    arguments = (1,) if "%" in message else ()
    assert line(message, *arguments) | {"time": 0} == {
        "time": 0, "level": "info", "logger": "dovecote.test", "event": "message", "message": message % arguments,
    }  # fmt: skip


def test_long_values_are_cut_and_failures_have_their_story():
    try:
        raise KeyError("gone")
    except KeyError as error:
        told = line("failed name=%s", "x" * 10_000, exc_info=(KeyError, error, error.__traceback__))
    assert len(told["name"]) == MAX_VALUE_CHARS + 1
    assert "KeyError: 'gone'" in told["exception"]


def test_an_event_may_have_a_word_filled_in():
    told = line("worker_%s worker=%s", "drained", "w0")
    assert (told["event"], told["worker"]) == ("worker_drained", "w0")


def log_templates():
    """Every literal template that the router logs by."""
    for path in sorted((ROOT / "router").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not node.args:
                continue
            if ast.unparse(node.func.value) == "_log" and isinstance(node.args[0], ast.Constant):
                yield path.name, node.args[0].value


def test_every_event_of_the_router_is_one_by_its_template():
    templates = list(log_templates())
    assert len(templates) > 30
    assert [(name, template) for name, template in templates if read_template(template) is None] == []

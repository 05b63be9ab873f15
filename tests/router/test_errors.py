"""The tree in the docstring is the tree in the code, and every body has OpenAI's form."""

import importlib
import pickle
import pkgutil
import re
from pathlib import Path

import pytest

import router
from router.control.facts import ContradictionError
from router.errors import (
    MAX_MESSAGE_CHARS,
    AllUnhealthyError,
    ConfigError,
    DovecoteError,
    FleetError,
    UnknownModelError,
    UpstreamError,
    UpstreamTimeoutError,
    error_body,
)


def all_errors():
    for module in pkgutil.walk_packages(router.__path__, "router."):
        if module.name != "router.__main__":
            importlib.import_module(module.name)
    return [DovecoteError, *find_below(DovecoteError)]


def find_below(error):
    for child in error.__subclasses__():
        if child.__module__.startswith("router."):
            yield child
            yield from find_below(child)


def test_the_docstring_draws_the_tree_as_it_is():
    drawn, path = {}, {}
    for line in router.errors.__doc__.splitlines():
        if match := re.match(r"^( {4}[│├└─ ]*)(\w+Error)\b(.*)$", line):
            depth = len(match[1]) // 4
            path[depth] = match[2]
            drawn[match[2]] = (path.get(depth - 1), match[3].split())
    assert set(drawn) == {error.__name__ for error in all_errors()}
    for error in all_errors():
        parent, words = drawn[error.__name__]
        assert (parent or "Exception") == error.__base__.__name__
        if error is not ConfigError:
            assert words[:2] == [str(error.status_code), error.code]


def test_every_code_that_a_client_may_see_is_told_on_the_page():
    page = (Path(__file__).parents[2] / "docs/http.md").read_text(encoding="utf-8")
    told = {word for line in page.splitlines() if line.startswith("| ") for word in re.findall(r"`(\w+)`", line)}
    # UpstreamError itself is only a root.
    hidden = {ConfigError, ContradictionError, UpstreamError}
    assert {error.code for error in all_errors() if error not in hidden} <= told


def test_a_body_has_the_form_of_the_openai_api():
    assert UnknownModelError("no model of that name", param="model").to_body() == {
        "error": {
            "message": "no model of that name",
            "type": "invalid_request_error",
            "param": "model",
            "code": "model_not_found",
        }
    }
    assert error_body("m", "t") == {"error": {"message": "m", "type": "t", "param": None, "code": None}}


def test_a_long_message_is_cut():
    message = error_body("x" * 5_000, "t")["error"]["message"]
    assert len(message) == MAX_MESSAGE_CHARS
    assert message.endswith("…")


@pytest.mark.parametrize("error", [FleetError("none", retry_after_s=7), AllUnhealthyError("none", retry_after_s=7)])
def test_a_fleet_without_a_worker_says_when_to_come_back(error):
    assert error.status_code == 503
    assert error.headers == {"retry-after": "7"}


def test_other_errors_add_no_headers():
    assert UpstreamTimeoutError("late").headers == {}


def test_a_config_error_without_a_key_names_the_file_only():
    assert str(ConfigError(file_name="f", key_path="", value=1, problem="p")) == "f: 1: p"


@pytest.mark.parametrize(
    "error",
    [
        ConfigError(file_name="fleet.yaml", key_path="workers.0.url", value={"a": [1]}, problem="no address"),
        ConfigError(file_name="fleet.yaml", key_path="", value=None, problem="cannot be read", shows_value=False),
        AllUnhealthyError("none is healthy", retry_after_s=7),
        UnknownModelError("no model of that name", param="model"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_is_the_same_in_another_process(error):
    other = pickle.loads(pickle.dumps(error))  # noqa: S301 - made a moment ago
    assert type(other) is type(error)
    assert (str(other), vars(other), other.headers) == (str(error), vars(error), error.headers)
    assert other.to_body() == error.to_body()

"""Whose fault an error within an answer of status 200 is, in each engine's words."""

import pytest

from router.proxy.told_error import read_abort_status, read_error_status


@pytest.mark.parametrize(
    ("error", "status"),
    [
        ({"message": "too long", "type": "BadRequestError", "code": 400}, 400),
        ({"message": "too long", "code": "400"}, 400),
        ({"message": "out of memory", "type": "InternalServerError", "code": 500}, 500),
        ({"type": "invalid_request_error", "message": "too long"}, 400),
        ({"type": "overloaded_error", "message": "full"}, 503),
        ({"type": "api_error", "message": "boom"}, 500),
        ({"code": "server_error", "message": "boom"}, 500),
        ({"code": 200}, 500),
        ({"code": 400.0}, 500),
        ({"code": True, "type": ["BadRequestError"]}, 500),
        ({}, 500),
        ("boom", 500),
        ([], 500),
    ],
)
def test_the_fault_is_the_clients_only_where_the_engine_says_so(error, status):
    assert read_error_status(error) == status
    assert read_error_status(error, has_output=True) == 500


@pytest.mark.parametrize(
    ("error", "status"),
    [
        ({"message": "The input (9 tokens) is longer than the model's context length"}, 400),
        ({}, 400),
        ({"message": "out of memory", "code": 500}, 500),
        ({"message": "boom", "type": "InternalServerError"}, 500),
        ({"message": "boom", "code": "odd"}, 500),
        ("boom", 500),
    ],
)
def test_where_a_form_tells_no_code_an_error_without_one_is_the_clients(error, status):
    assert read_error_status(error, untold_status=400) == status
    assert read_error_status(error, untold_status=400, has_output=True) == 500


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        ({"type": "abort", "message": "KV transfer failed", "status_code": 500}, 500),
        ({"type": "abort", "message": "busy", "status_code": 503, "err_type": "x"}, 503),
        ({"type": "abort", "message": "too long", "status_code": 400}, 400),
        ({"type": "abort", "message": "odd", "status_code": "odd"}, 500),
        ({"type": "abort", "message": "Aborted"}, None),
        ({"type": "abort", "message": "Aborted", "status_code": None}, None),
        ({"type": "stop", "matched": 7}, None),
        ({"type": "length", "length": 9, "status_code": 500}, None),
        ("abort", None),
        (None, None),
    ],
)
def test_an_abort_by_the_engine_is_told_apart_from_one_that_was_asked_for(reason, status):
    assert read_abort_status(reason, has_output=False) == status

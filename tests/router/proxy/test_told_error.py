"""Whose fault an error within an answer of status 200 is, in each engine's words."""

import pytest

from router.proxy.told_error import read_error_status


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

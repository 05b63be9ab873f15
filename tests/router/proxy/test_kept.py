"""Names of kept state are held within limits; turns that name the answer before are one conversation."""

import pytest

from router.errors import RequestError
from router.proxy.kept import (
    MAX_ID_CHARS,
    ResponseChains,
    check_id,
    check_path_id,
    find_response_path,
    name_response,
    name_session,
)


def test_a_session_cannot_take_the_name_of_a_response():
    assert name_response("a") != name_session("a")


def test_an_id_is_text_of_some_length():
    assert check_id("é" * MAX_ID_CHARS, "x") == "é" * MAX_ID_CHARS
    for odd in ("", "x" * (MAX_ID_CHARS + 1), None, 3, ["a"]):
        with pytest.raises(RequestError, match="x must be a string of 1 to 256 characters"):
            check_id(odd, "x")


@pytest.mark.parametrize("odd", ["", "..%2f", "a b", "a/b", "é", "a\n", "x" * 257])
def test_an_id_in_a_path_has_no_character_that_means_something_there(odd):
    with pytest.raises(RequestError):
        check_path_id(odd)


def test_paths_about_one_response_are_told_from_others():
    assert find_response_path("/v1/responses/resp_1") == ("resp_1", False)
    assert find_response_path("/v1/responses/resp_1/cancel") == ("resp_1", True)
    assert find_response_path("/v1/responses/") == ("", False)
    for other in ("/v1/responses", "/v1/responses/a/b", "/v1/responses/a/cancel/", "/v2/responses/a"):
        assert find_response_path(other) is None


def test_a_chain_is_named_by_its_first_session_else_by_its_first_answer():
    chains = ResponseChains()
    chains.store("resp_1", None)
    chains.store("resp_2", chains.find("resp_1"))
    chains.store("resp_3", "mine")
    assert [chains.find(name) for name in ("resp_1", "resp_2", "resp_3", "resp_9")] == [
        "resp_1", "resp_1", "mine", "resp_9",
    ]  # fmt: skip


def test_the_longest_unused_chain_goes_when_there_are_too_many():
    chains = ResponseChains(max_responses=2)
    for name in ("a", "b", "a", "c"):
        chains.store(name, "s")
    assert len(chains) == 2
    assert (chains.find("a"), chains.find("b")) == ("s", "b")

"""Without the compiled module the Python code serves, with the same results."""

import pytest

from prefix_index import hashing
from wire import block_hash

TOKENS = list(range(50))


def test_without_the_native_module_python_hashes(monkeypatch):
    expected = hashing.block_hashes(TOKENS, 16, 3)
    monkeypatch.setattr(hashing, "_native", None)
    assert not hashing.native_available()
    assert hashing.block_hashes(TOKENS, 16, 3) == expected == block_hash.block_hashes(TOKENS, 16, 3)


def test_bad_arguments_are_the_same_error_either_way(monkeypatch):
    for _ in range(2):
        with pytest.raises(ValueError, match="block_tokens"):
            hashing.block_hashes(TOKENS, 0, 3)
        with pytest.raises(ValueError, match="token ids"):
            hashing.block_hashes([-1], 1, 3)
        monkeypatch.setattr(hashing, "_native", None)

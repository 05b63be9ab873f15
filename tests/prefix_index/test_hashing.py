"""Without the compiled module the Python code serves, with the same results."""

import os
import subprocess
import sys

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


PRINT_HASHES = """
from prefix_index import block_hashes
from wire.block_hash import namespace_seed
print(block_hashes(range(50), 16, namespace_seed("m", adapter="a", cache_salt="s")))
"""


@pytest.mark.parametrize("hash_seed", ["0", "1", "random"])
def test_A20_every_process_makes_the_same_hashes_whatever_its_own_hash_seed_is(hash_seed):
    found = subprocess.run(
        [sys.executable, "-c", PRINT_HASHES],
        env=os.environ | {"PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    seed = block_hash.namespace_seed("m", adapter="a", cache_salt="s")
    assert found.strip() == str(hashing.block_hashes(range(50), 16, seed))

"""Each package's `__init__` re-exports few names, and all of them exist."""

import importlib

import pytest

PACKAGES = ("wire", "prefix_index", "router", "engine_shim", "engine_shim.engine", "kernels", "simulator")


@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_re_exports_at_most_six_names_that_exist(name):
    package = importlib.import_module(name)
    exported = getattr(package, "__all__", [])
    assert len(exported) <= 6
    assert [one for one in exported if not hasattr(package, one)] == []

"""One rule says what computes an op, and Triton is imported only where it runs."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import kernels
from kernels import dispatch
from kernels.dispatch import check_devices, implementation, runs_triton
from kernels.errors import DeviceMismatch, DtypeMismatch
from kernels.paged_decode_attention import paged_decode_attention
from kernels.testing import assert_close, by_reference

FOLDER = Path(kernels.__file__).parent
OPS = sorted(path.parent.name for path in FOLDER.glob("*/reference.py"))
TENSOR = torch.zeros(1)


def test_every_op_has_a_reference_a_kernel_and_a_page():
    assert len(OPS) == 15
    for op in OPS:
        for name in ("__init__.py", "kernel.py", "README.md"):
            assert (FOLDER / op / name).exists(), (op, name)


def test_on_the_cpu_the_reference_computes_and_under_the_interpreter_the_kernel(monkeypatch):
    pytest.importorskip("triton", reason="needs triton, which is made for Linux only")
    assert implementation("page_gather", TENSOR).__name__ == "kernels.page_gather.reference"
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert implementation("page_gather", TENSOR).__name__ == "kernels.page_gather.kernel"
    with by_reference():
        assert implementation("page_gather", TENSOR).__name__ == "kernels.page_gather.reference"
    assert runs_triton(TENSOR)


def test_no_op_imports_triton_before_it_runs():
    names = [f"kernels.{op}" for op in OPS] + [f"kernels.{op}.reference" for op in OPS]
    code = f"import sys\nfor name in {names}: __import__(name)\nassert 'triton' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=FOLDER.parent)


def test_tensors_of_two_devices_are_named():
    with pytest.raises(DeviceMismatch, match="other on meta"):
        check_devices(one=TENSOR, other=TENSOR.to("meta"), none=None)
    check_devices(one=TENSOR, other=TENSOR)


def test_the_interpreter_is_given_no_bfloat16_to_multiply(monkeypatch):
    """It would answer, and wrongly."""
    dispatch.check_multiplies(TENSOR.bfloat16())
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    dispatch.check_multiplies(TENSOR)
    pool, table, one = torch.ones(1, 4, 1, 16).bfloat16(), torch.zeros(1, 1).int(), torch.tensor([1])
    with pytest.raises(DtypeMismatch, match="bfloat16"):
        paged_decode_attention(pool[0, :1], pool, pool.clone(), table, one, scale=1.0)


def test_numbers_on_the_cpu_are_always_looked_at():
    assert dispatch.can_read(TENSOR)


@pytest.mark.parametrize(
    ("got", "expected"),
    [
        ([1.0, 2.0], [1.0, 2.1]),
        ([1.0, float("nan")], [1.0, 2.0]),
        ([1.0, float("inf")], [1.0, 2.0]),
        ([1.0, 2.0], [1.0, -float("inf")]),
        ([1.0], [1.0, 2.0]),
    ],
)
def test_what_is_not_close_is_an_error(got, expected):
    with pytest.raises(AssertionError):
        assert_close("x", torch.tensor(got), torch.tensor(expected))


def test_what_is_close_is_none():
    expected = torch.tensor([1.0, -float("inf"), 2.0])
    assert_close("x", expected * (1 + 1e-6), expected)
    assert_close("nothing finite", torch.tensor([-float("inf")]), torch.tensor([-float("inf")]))
    with pytest.raises(AssertionError, match="float16"):
        assert_close("x", expected.half(), expected)

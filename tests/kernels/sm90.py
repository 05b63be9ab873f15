"""Compile what ops launch for an H200, on a machine that has none, and say what came out.

`python tests/kernels/sm90.py SCENARIO...` prints a JSON line for each scenario of `scenarios_sm90`: what was compiled
in it, and of each compilation the accesses to memory in its PTX and what ptxas gave it. Ops are called with tensors of
the CPU, and nothing is launched: a stub stands in for the driver.
"""

import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from kernels import dispatch
from kernels.gated_delta_rule import kernel as gated_delta_rule

PTXAS = Path(triton.__file__).parent / "backends/nvidia/bin/ptxas"
#: Multiprocessors of an H200.
PROCESSORS = 132
ACCESS = re.compile(r"\b(ld|st)\.global((?:\.\w+|::\w+)*)")


class StubDriver:
    """Says that it is an H200, loads nothing and launches nothing."""

    def __init__(self):
        self.utils = SimpleNamespace(
            load_binary=lambda *_: (None, None, 0, 0, 1024),
            get_device_properties=lambda _: {"max_shared_mem": 227 * 1024, "multiprocessor_count": PROCESSORS},
        )

    def launcher_cls(self, _source, _metadata):
        return lambda *_: None

    def get_current_target(self):
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self):
        return 0

    def get_current_stream(self, _device):
        return 0


def compile_all(names):
    """Each scenario's compilations, in order."""
    import scenarios_sm90  # noqa: PLC0415 - it is found beside this file

    driver.set_active(StubDriver())
    dispatch.runs_triton = lambda *_: True
    gated_delta_rule.count_processors = lambda _: PROCESSORS
    torch.set_num_threads(1)
    found = []
    triton.knobs.runtime.jit_post_compile_hook = lambda **event: found.append(event) or False
    for name in names:
        found.clear()
        getattr(scenarios_sm90, name)()
        yield {"scenario": name, "compilations": [describe(event) for event in found]}


def describe(event):
    """Of one compilation: kernel, registers, spilled bytes, and how often memory is read and written how."""
    function, key = event["fn"].jit_function, event["compile"]["key"]
    ptx = function.device_caches[0][0][key].asm["ptx"]
    accesses = {"ld": Counter(), "st": Counter()}
    for kind, qualifiers in ACCESS.findall(ptx):
        accesses[kind][bytes_of(qualifiers)] += 1
    for width in re.findall(r"cp\.async\.\w+\.shared\.global[^;]*?, (0x[0-9a-f]+|\d+)[,;]", ptx):
        accesses["ld"][int(width, 0)] += 1
    return {"kernel": function.__name__, **accesses, **assemble(ptx)}


def bytes_of(qualifiers):
    """Bytes of an access, from the vector and the type that its instruction names."""
    vector = re.search(r"\.v(\d)", qualifiers)
    return int(re.search(r"\.[bsuf](\d+)$", qualifiers)[1]) // 8 * int(vector[1] if vector else 1)


def assemble(ptx):
    """What ptxas says of registers and spills."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernel.ptx")
        path.write_text(ptx)
        command = [PTXAS, "-v", "-arch=sm_90a", "-o", path.with_suffix(".cubin"), path]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    spilled = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", said)
    return {
        "registers": int(re.search(r"Used (\d+) registers", said)[1]),
        "spilled_bytes": int(spilled[1]) + int(spilled[2]),
    }


if __name__ == "__main__":
    for line in compile_all(sys.argv[1:]):
        sys.stdout.write(json.dumps(line) + "\n")

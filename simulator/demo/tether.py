"""`python -m simulator.demo.tether PARENT MODULE [ARGUMENT]...`: `python -m MODULE`, killed with its parent.

The kernel kills the process when the thread that started it ends, even by SIGKILL, which no handler sees. It is
asked for here, in the child: between fork and exec of a process that runs an event loop nothing may be done. Where
the kernel does not offer it (it is Linux's) the module runs all the same.
"""

import ctypes
import os
import runpy
import signal
import sys

_PR_SET_PDEATHSIG = 1


def tether_to(parent_pid: int) -> None:
    """Have the kernel kill this process with its parent; end now if the parent is gone already."""
    if not sys.platform.startswith("linux"):
        return
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    if prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), *[ctypes.c_ulong(0)] * 3):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent_pid:
        sys.exit(f"process {parent_pid}, which started this one, is gone")


def run_tethered(words: list[str]) -> None:
    """Run a module with arguments in this process, as `python -m` does."""
    parent_pid, module, *arguments = words
    tether_to(int(parent_pid))
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    run_tethered(sys.argv[1:])

"""Processes that a benchmark starts: told by a line that they are ready, ended by their id, their CPU time read."""

import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

#: Longest wait for anything that a process is to do.
DEADLINE_S = 120.0


class Child:
    """A running process that answers lines with lines."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self.pid = process.pid

    def read_line(self) -> str:
        """Its next line.

        Raises:
            RuntimeError: It ended instead.
        """
        line = self._process.stdout.readline() if self._process.stdout else ""
        if not line:
            raise RuntimeError(f"{self._process.args!r} ended with status {self._process.wait()}")
        return line.strip()

    def ask(self, line: str) -> str:
        """Say a line, read one."""
        self.say(line)
        return self.read_line()

    def say(self, line: str) -> None:
        """Say a line."""
        if self._process.stdin is not None:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()

    def wait_until_idle(self) -> float:
        """CPU seconds it has used once it uses no more."""
        used_s, end_s = read_cpu_s(self.pid), time.monotonic() + DEADLINE_S
        while time.monotonic() < end_s:
            time.sleep(0.4)
            before_s, used_s = used_s, read_cpu_s(self.pid)
            # What its clocks and heartbeats take is below one tick in so short a time, or about one.
            if used_s - before_s <= 0.01:
                return used_s
        raise RuntimeError(f"{self._process.args!r} was still busy after {DEADLINE_S:g} s")


@contextmanager
def run_child(command: Sequence[str | Path], **environment: str) -> Iterator[Child]:
    """A process for as long as the context lasts."""
    words = [str(word) for word in command]
    pipe, variables = subprocess.PIPE, {**os.environ, **environment}
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True, env=variables) as process:
        try:
            yield Child(process)
        finally:
            process.terminate()


def read_cpu_s(pid: int) -> float:
    """CPU time of a process with all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def read_resident_bytes(pid: int) -> int:
    """Memory of a process that is in use."""
    return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def find_free_port() -> int:
    """A port of loopback that nobody has at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(condition: Callable[[], bool], what: str) -> None:
    """Wait until something holds.

    Raises:
        RuntimeError: It does not in time.
    """
    end_s = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > end_s:
            raise RuntimeError(f"waited in vain for {what}")
        time.sleep(0.02)

"""A real Redis on a socket file of its own, without a TCP port and without anything on disk."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import redis

from tests.waiting import wait_until

ROOT = Path(__file__).parents[1]
UNPACKED = ROOT / ".venv/redis"


def find_program():
    """The program and its environment; skips, saying so, where there is none."""
    found = shutil.which("redis-server")
    if found is not None:
        return found, dict(os.environ)
    program = UNPACKED / "usr/bin/redis-server"
    if not program.exists():
        subprocess.run([ROOT / "scripts/fetch-redis"], check=False, timeout=100)
    if not program.exists():
        pytest.skip("needs Redis: none is installed, and scripts/fetch-redis found none")
    folders = {str(path.parent) for path in UNPACKED.rglob("lib*.so*")}
    return str(program), {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(sorted(folders))}


class RedisServer:
    """One server; may be killed and started again, and forgets everything then."""

    def __init__(self, folder):
        self.path = folder / "redis.sock"
        self.url = f"unix://{self.path}"
        self._process = None

    def start(self):
        program, environment = find_program()
        command = [program, "--port", "0", "--unixsocket", str(self.path), "--save", "", "--dir", str(self.path.parent)]
        self._process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
        wait_until(lambda: self._process.poll() is not None or self._answers(), "Redis")
        assert self._process.poll() is None, "Redis ended"
        return self

    def _answers(self):
        try:
            with redis.Redis.from_url(self.url) as client:
                return client.ping()
        except (redis.RedisError, OSError):
            return False

    def client(self):
        return redis.Redis.from_url(self.url)

    def kill(self):
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
            self.path.unlink(missing_ok=True)

"""TLS contexts made of the configuration's files, each defect of a file told by its key and name.

A context is made once; `ServerCertificate.refresh` loads changed files into it, which counts for connections from
then on, so that certificates can be renewed under a running router.
"""

import asyncio
import logging
import ssl
from pathlib import Path

from router.config.network import ServerTls, WorkerTls
from router.errors import ConfigError
from router.regular_file import Mark, find_mark, read_bytes

_log = logging.getLogger("dovecote.tls")
#: Seconds between two looks at the files of a certificate.
POLL_S = 30.0
_SOURCE = "configuration"
_CERTIFICATE = b"-----BEGIN CERTIFICATE-----"
_PRIVATE_KEY = b"PRIVATE KEY-----"
MAX_FILE_BYTES = 4 << 20


class ServerCertificate:
    """What the listeners show."""

    def __init__(self, config: ServerTls) -> None:
        """Read the files.

        Raises:
            ConfigError: One of them cannot be used.
        """
        self._config = config
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.set_alpn_protocols(["http/1.1"])
        self._marks = self._find_marks()
        self._load()

    def refresh(self) -> bool:
        """Read the files again where one of them changed; whether they were taken.

        Raises:
            ConfigError: A changed file cannot be used; the old certificate goes on.
        """
        marks = self._find_marks()
        if marks == self._marks:
            return False
        # A pair that does not match yet, because only one of its files was written so far, is tried on a spare.
        ServerCertificate(self._config)
        self._load()
        self._marks = marks
        return True

    def _find_marks(self) -> tuple[Mark | None, ...]:
        """Tell one state of the files from another."""
        files = (self._config.cert_file, self._config.key_file, self._config.client_ca_file)
        return tuple(find_mark(Path(name)) for name in files if name is not None)

    def _load(self) -> None:
        config = self._config
        password = None if config.key_password is None else config.key_password.get_secret_value()
        load_pair(self.context, "listen.tls", config.cert_file, config.key_file, password)
        if config.client_ca_file is not None:
            load_authorities(self.context, "listen.tls.client_ca_file", config.client_ca_file)
            self.context.verify_mode = ssl.CERT_REQUIRED


class CertificateWatch:
    """Looks now and then whether the files of a certificate were renewed. Belongs to the event loop that starts it."""

    def __init__(self, certificate: ServerCertificate, *, poll_s: float = POLL_S) -> None:
        self._certificate = certificate
        self._poll_s = poll_s
        self._task: asyncio.Task[None] | None = None
        self._problem: str | None = None

    def start(self) -> None:
        """Begin."""
        self._task = asyncio.create_task(self._watch())

    async def stop(self) -> None:
        """End."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._poll_s)
            self.look()

    def look(self) -> None:
        """Take renewed files; a problem with them is logged once, and the old certificate goes on."""
        try:
            if self._certificate.refresh():
                _log.info("certificate_renewed")
            self._problem = None
        except ConfigError as error:
            if error.message != self._problem:
                _log.error("certificate_refused reason=%r effect='the old one stays'", error.message)
            self._problem = error.message


def make_worker_context(config: WorkerTls) -> ssl.SSLContext:
    """How workers are spoken to.

    Raises:
        ConfigError: A file cannot be used.
    """
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if config.ca_file is not None:
        # The operator's authorities alone count: a public one has no say about workers.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        load_authorities(context, "worker_tls.ca_file", config.ca_file)
    if config.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if config.cert_file is not None and config.key_file is not None:
        load_pair(context, "worker_tls", config.cert_file, config.key_file, None)
    return context


def load_pair(context: ssl.SSLContext, section: str, cert_file: str, key_file: str, password: str | None) -> None:
    """Load a certificate and its private key.

    Raises:
        ConfigError: They cannot be used.
    """
    if _CERTIFICATE not in read_file(f"{section}.cert_file", cert_file):
        raise _refuse(f"{section}.cert_file", cert_file, "has no certificate in PEM form")
    key = read_file(f"{section}.key_file", key_file)
    if _PRIVATE_KEY not in key:
        raise _refuse(f"{section}.key_file", key_file, "has no private key in PEM form")
    try:
        # Without a password at hand OpenSSL would ask for one on the terminal.
        context.load_cert_chain(cert_file, key_file, password or "")
    except (ssl.SSLError, ValueError, OSError) as error:
        raise _refuse(f"{section}.key_file", key_file, _explain(error, cert_file, key, password)) from error


def load_authorities(context: ssl.SSLContext, key_path: str, name: str) -> None:
    """Load authorities.

    Raises:
        ConfigError: The file has none.
    """
    read_file(key_path, name)
    try:
        context.load_verify_locations(cafile=name)
    except (ssl.SSLError, OSError) as error:
        raise _refuse(key_path, name, "has no certificates in PEM form") from error


def read_file(key_path: str, name: str) -> bytes:
    """The bytes of a small regular file.

    Raises:
        ConfigError: It cannot be read, or is none.
    """
    try:
        return read_bytes(Path(name), MAX_FILE_BYTES)
    except ValueError as error:
        raise _refuse(key_path, name, str(error)) from error


def _explain(error: Exception, cert_file: str, key: bytes, password: str | None) -> str:
    if "KEY_VALUES_MISMATCH" in (getattr(error, "reason", None) or ""):
        return f"is not the private key of the certificate in {cert_file}"
    if b"ENCRYPTED" in key:
        return "needs key_password" if password is None else "key_password does not open it"
    return f"it or {cert_file} is damaged"


def _refuse(key_path: str, name: str, problem: str) -> ConfigError:
    return ConfigError(file_name=_SOURCE, key_path=key_path, value=name, problem=problem)

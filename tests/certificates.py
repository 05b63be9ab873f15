"""Authorities and certificates for tests of TLS, as the PEM files that a configuration names."""

import ssl
from pathlib import Path

import trustme


class Authority:
    """An authority, and the files of what it issued."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self.folder = folder
        self.ca = trustme.CA()
        self.ca_file = str(folder / f"{name}.pem")
        self.ca.cert_pem.write_to_path(self.ca_file)

    def issue(self, name: str, *hosts: str) -> tuple[str, str]:
        """Files of a certificate and its private key."""
        issued = self.ca.issue_cert(*(hosts or ("127.0.0.1", "localhost")))
        cert_file, key_file = (str(self.folder / f"{name}-{part}.pem") for part in ("cert", "key"))
        issued.private_key_pem.write_to_path(key_file)
        Path(cert_file).unlink(missing_ok=True)
        for pem in issued.cert_chain_pems:
            pem.write_to_path(cert_file, append=True)
        return cert_file, key_file

    def trusting(self, pair: tuple[str, str] | None = None) -> ssl.SSLContext:
        """Context of a client that believes this authority, and shows a certificate of its own."""
        context = ssl.create_default_context(cafile=self.ca_file)
        if pair is not None:
            context.load_cert_chain(*pair)
        return context

    def serving(self, pair: tuple[str, str], *, asks: bool = False) -> ssl.SSLContext:
        """Context of a server, which asks its clients for certificates of this authority."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*pair)
        if asks:
            context.load_verify_locations(self.ca_file)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

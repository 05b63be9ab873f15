"""Each defect of a certificate's files is told by key and name, and renewed files count without a restart."""

import os
import ssl
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from router.config.network import ServerTls, WorkerTls
from router.errors import ConfigError
from router.tls import CertificateWatch, ServerCertificate, make_worker_context
from tests.certificates import Authority


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


def lock(key_file, password):
    """The private key again, under a password."""
    key = serialization.load_pem_private_key(Path(key_file).read_bytes(), None)
    kind = serialization.BestAvailableEncryption(password.encode())
    locked = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, kind)
    path = Path(key_file).with_name("locked.pem")
    path.write_bytes(locked)
    return str(path)


def refuse(cert_file, key_file, **more):
    with pytest.raises(ConfigError) as refused:
        ServerCertificate(ServerTls(cert_file=cert_file, key_file=key_file, **more))
    return refused.value.key_path, refused.value.problem


def test_each_defect_of_a_file_is_told(authority, tmp_path):
    cert, key = authority.issue("a")
    _, other_key = authority.issue("b")
    junk = tmp_path / "junk.pem"
    junk.write_text("junk")
    damaged = tmp_path / "damaged.pem"
    damaged.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    assert refuse("/not/there.pem", key) == ("listen.tls.cert_file", "cannot be read: No such file or directory")
    assert refuse(cert, str(tmp_path)) == ("listen.tls.key_file", "cannot be read: Is a directory")
    os.mkfifo(tmp_path / "pipe")
    assert refuse(cert, str(tmp_path / "pipe")) == ("listen.tls.key_file", "not a regular file")
    assert refuse(str(junk), key) == ("listen.tls.cert_file", "has no certificate in PEM form")
    assert refuse(cert, str(junk)) == ("listen.tls.key_file", "has no private key in PEM form")
    assert refuse(cert, other_key) == ("listen.tls.key_file", f"is not the private key of the certificate in {cert}")
    assert refuse(str(damaged), key) == ("listen.tls.key_file", f"it or {damaged} is damaged")
    locked = lock(key, "open sesame")
    assert refuse(cert, locked) == ("listen.tls.key_file", "needs key_password")
    assert refuse(cert, locked, key_password="no") == ("listen.tls.key_file", "key_password does not open it")
    assert ServerCertificate(ServerTls(cert_file=cert, key_file=locked, key_password="open sesame"))
    problem = "has no certificates in PEM form"
    assert refuse(cert, key, client_ca_file=str(junk)) == ("listen.tls.client_ca_file", problem)


def test_a_client_certificate_is_asked_for_where_authorities_are_named(authority):
    cert, key = authority.issue("a")
    open_to_all = ServerCertificate(ServerTls(cert_file=cert, key_file=key)).context
    assert open_to_all.verify_mode is ssl.CERT_NONE
    closed = ServerCertificate(ServerTls(cert_file=cert, key_file=key, client_ca_file=authority.ca_file)).context
    assert closed.verify_mode is ssl.CERT_REQUIRED
    assert closed.minimum_version >= ssl.TLSVersion.TLSv1_2


def test_renewed_files_are_taken_and_half_written_ones_left_alone(authority, caplog):
    cert, key = authority.issue("a")
    certificate = ServerCertificate(ServerTls(cert_file=cert, key_file=key))
    watch = CertificateWatch(certificate)
    assert not certificate.refresh()
    old = Path(key).read_bytes()
    authority.issue("a")
    new = Path(key).read_bytes()
    Path(key).write_bytes(old)
    watch.look()
    watch.look()
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    Path(key).write_bytes(new)
    assert certificate.refresh()
    assert not certificate.refresh()


def test_workers_are_believed_as_configured(authority):
    assert make_worker_context(WorkerTls()).check_hostname
    strict = make_worker_context(WorkerTls(ca_file=authority.ca_file))
    assert strict.verify_mode is ssl.CERT_REQUIRED
    assert strict.check_hostname
    assert len(strict.get_ca_certs()) == 1
    assert make_worker_context(WorkerTls(insecure=True)).verify_mode is ssl.CERT_NONE
    with pytest.raises(ConfigError, match=r"worker_tls\.ca_file"):
        make_worker_context(WorkerTls(ca_file="/not/there.pem"))

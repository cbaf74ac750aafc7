"""HTTPS servers whose certificates lack key identifiers, like the CAs of clusters older than Kubernetes 1.17."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

_YEAR = timedelta(days=365)


@dataclass(frozen=True, slots=True)
class Authority:
    """A CA certificate without key identifiers, and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> bytes:
        """The certificate as PEM."""
        return self.certificate.public_bytes(Encoding.PEM)


def authority(name: str = "kubernetes") -> Authority:
    """Return a new CA."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(name)
    ca = x509.BasicConstraints(ca=True, path_length=None)
    built = _builder(subject, subject, key, datetime.now(UTC) + _YEAR).add_extension(ca, critical=True)
    return Authority(built.sign(key, hashes.SHA256()), key)


def server_context(
    signer: Authority, folder: Path, *, host: str = "localhost", expired: bool = False
) -> ssl.SSLContext:
    """Return the TLS context of a server. Its certificate is for `host`; if `expired`, it ended a day ago."""
    until = datetime.now(UTC) + (-timedelta(days=1) if expired else _YEAR)
    key = ec.generate_private_key(ec.SECP256R1())
    names = x509.SubjectAlternativeName([x509.DNSName(host)])
    builder = _builder(_name(host), signer.certificate.subject, key, until)
    certificate = builder.add_extension(names, critical=False).sign(signer.key, hashes.SHA256())
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    file = folder / f"{host}-{expired}.pem"
    file.write_bytes(certificate.public_bytes(Encoding.PEM) + pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context


@contextmanager
def serving(
    signer: Authority, folder: Path, *, host: str = "localhost", expired: bool = False
) -> Iterator[int]:
    """Serve an empty JSON object over HTTPS on a loopback port, which is returned.

    The certificate is for `host`, and ended a day ago where it is `expired`.
    """
    context = server_context(signer, folder, host=host, expired=expired)
    server = _Server(("127.0.0.1", 0), _Answers)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that reject the certificate: that is what the tests check."""


class _Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 the base class's name
        """Log nothing."""


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, until: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.now(UTC) - _YEAR)
        .not_valid_after(until)
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])

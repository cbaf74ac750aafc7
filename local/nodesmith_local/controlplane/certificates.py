"""Certificates: an authority, one serving certificate for all programs, and the key for service account tokens."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

FIRST_SERVICE_ADDRESS = "10.96.0.1"
_NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
_ADDRESSES = ("127.0.0.1", FIRST_SERVICE_ADDRESS)
_VALID = timedelta(days=365)


def write_certificates(folder: Path) -> None:
    """Write ca.crt, ca.key, serving.crt, serving.key, accounts.key and accounts.pub.

    The files are PEM, readable by their owner only.
    """
    authority, serving, accounts = (ec.generate_private_key(ec.SECP256R1()) for _ in range(3))
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "nodesmith-local")])
    ca = (
        _certificate(name, name, authority.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(authority.public_key()), critical=False)
        .sign(authority, hashes.SHA256())
    )
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    names = [x509.DNSName(dns_name) for dns_name in _NAMES]
    addresses = [x509.IPAddress(IPv4Address(address)) for address in _ADDRESSES]
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key())
    server = (
        _certificate(subject, name, serving.public_key())
        .add_extension(x509.SubjectAlternativeName([*names, *addresses]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(issuer, critical=False)  # Python 3.13 and later refuse certificates without it
        .sign(authority, hashes.SHA256())
    )
    _write(folder / "ca.crt", ca.public_bytes(Encoding.PEM))
    _write(folder / "ca.key", _private(authority))
    _write(folder / "serving.crt", server.public_bytes(Encoding.PEM))
    _write(folder / "serving.key", _private(serving))
    _write(folder / "accounts.key", _private(accounts))
    public = accounts.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    _write(folder / "accounts.pub", public)


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))  # for clients whose clock is slightly behind
        .not_valid_after(now + _VALID)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _write(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(content)

"""A certificate authority of one's own, the hub's certificate, and one key for each site."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedse.storage import atomic

YEARS = 5


def write_authority(folder: Path, host: str) -> None:
    """`ca.crt`, `ca.key`, `server.crt`, `server.key`: a certificate for `host` and for this machine itself."""
    authority = ec.generate_private_key(ec.SECP384R1())
    _write_secret(folder / "ca.key", _pem(authority))
    _write_certificates(folder, authority, host)


def renew(folder: Path, host: str) -> None:
    """New certificates of the same authority: who trusts the old `ca.crt` trusts them until that one ends."""
    authority = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
    assert isinstance(authority, ec.EllipticCurvePrivateKey)
    _write_certificates(folder, authority, host)


def ends(certificate: Path) -> datetime.datetime:
    """When a certificate is no longer valid."""
    return x509.load_pem_x509_certificate(certificate.read_bytes()).not_valid_after_utc


def _write_certificates(folder: Path, authority: ec.EllipticCurvePrivateKey, host: str) -> None:
    name = _name("fedse hub authority")
    own = (
        _draft(name, name, authority.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(authority.public_key()), critical=False)
        .sign(authority, hashes.SHA384())
    )
    server = ec.generate_private_key(ec.SECP384R1())
    hosts = list(dict.fromkeys([host, "localhost", "127.0.0.1"]))
    certificate = (
        _draft(_name(host), name, server.public_key())
        .add_extension(x509.SubjectAlternativeName([_general(item) for item in hosts]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()), critical=False)
        .sign(authority, hashes.SHA384())
    )
    _write(folder / "ca.crt", own.public_bytes(serialization.Encoding.PEM))
    _write_secret(folder / "server.key", _pem(server))
    _write(folder / "server.crt", certificate.public_bytes(serialization.Encoding.PEM))


def write_site_key(secret: Path, public: Path) -> None:
    """A key pair in the form that Flower's node authentication reads."""
    key = ec.generate_private_key(ec.SECP384R1())
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH
    _write_secret(secret, key.private_bytes(encoding, form, serialization.NoEncryption()))
    line = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    _write(public, line + b"\n")


def write_seal(secret: Path, public: Path) -> None:
    """The key pair with which a hub signs its tasks."""
    key = Ed25519PrivateKey.generate()
    encoding, form = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    _write(public, key.public_key().public_bytes(encoding, form))
    _write_secret(secret, _pem(key))


def _draft(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        # Clocks of different machines differ.
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=365 * YEARS))
    )


def _usage(signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common[:64])])


def _general(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(key: ec.EllipticCurvePrivateKey | Ed25519PrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write(path: Path, content: bytes) -> None:
    with atomic.new_file(path) as part:
        part.write_bytes(content)


def _write_secret(path: Path, content: bytes) -> None:
    """Readable by its owner only, from the first moment on."""
    with atomic.new_file(path) as part:
        part.touch(mode=0o600)
        part.write_bytes(content)

"""A certificate of localhost, for servers that tests talk to over TLS."""

from __future__ import annotations

import datetime
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


def certificate_of_localhost(folder: Path) -> Path:
    """Write a certificate that vouches for itself, and its key, into one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    day = datetime.timedelta(days=1)
    names = x509.SubjectAlternativeName([x509.DNSName("localhost")])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - day)
        .not_valid_after(now + day)
        .add_extension(names, critical=False)
        .sign(key, hashes.SHA256())
    )
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    path = folder / "certificate.pem"
    path.write_bytes(
        made.public_bytes(pem) + key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
    )
    return path


def serving(certificate: Path) -> ssl.SSLContext:
    """What a server needs to speak TLS with it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context

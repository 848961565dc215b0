"""A target with TLS is checked, trusted on request, and measured like any other."""

import datetime as dt
import ipaddress
import ssl
from dataclasses import replace

import pytest

from trtgate.errors import UsageError
from trtgate.loads.base import Ask, Target
from trtgate.loads.run import run_load

x509 = pytest.importorskip("cryptography.x509")
from cryptography.hazmat.primitives import hashes, serialization  # noqa: E402 - after the skip
from cryptography.hazmat.primitives.asymmetric import ec  # noqa: E402

ASKS = [Ask(0.0, (1,), 2), Ask(0.0, (1,), 2, after=0)]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A self-signed certificate of 127.0.0.1 and its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "trtgate test")])
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(dt.datetime(2020, 1, 1))
        .not_valid_after(dt.datetime(2100, 1, 1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False
        )
        .sign(key, hashes.SHA256())
    )
    private = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    path.write_bytes(
        built.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(serialization.Encoding.PEM, *private)
    )
    return path


@pytest.fixture
def secure(server, wire, certificate):
    server.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.tls.load_cert_chain(certificate)
    server.scripts = [[wire.stream(wire.token(token_ids=[7]), wire.token(token_ids=[8]), wire.done)]]
    return server


def test_a_trusted_certificate_gives_answers_on_one_connection(secure, certificate):
    result = run_load(replace(secure.target, verify=str(certificate)), ASKS, timeout_s=5.0)
    assert [answer.error for answer in result.answers] == [None, None]
    assert [answer.token_ids for answer in result.answers] == [(7, 8)] * 2
    assert secure.connections == 1


def test_the_handshake_is_part_of_connecting_not_of_the_first_token(secure, certificate):
    first = run_load(replace(secure.target, verify=str(certificate)), ASKS, timeout_s=5.0).answers[0]
    assert first.connect_s > 0
    assert first.sent_s >= first.scheduled_s


def test_an_unknown_certificate_is_an_error_of_every_answer(secure):
    result = run_load(secure.target, ASKS, timeout_s=5.0)
    assert [answer.error for answer in result.answers] == ["tls", "tls"]


def test_checking_can_be_turned_off(secure):
    result = run_load(replace(secure.target, verify=False), ASKS, timeout_s=5.0)
    assert all(answer.ok for answer in result.answers)


def test_a_plain_server_behind_https_is_an_error(server):
    server.scripts = [["close"]]
    target = replace(server.target, url=server.target.url.replace("http:", "https:"))
    assert run_load(target, ASKS[:1], timeout_s=0.3).answers[0].error in ("tls", "timeout", "closed", "reset")


def test_a_stream_of_many_records_in_one_read_is_whole(secure, wire, certificate):
    secure.scripts = [[wire.stream(*[wire.token("x" * 5000)] * 20, wire.done)]]
    (answer,) = run_load(replace(secure.target, verify=str(certificate)), ASKS[:1], timeout_s=5.0).answers
    assert (answer.error, len(answer.chunk_s)) == (None, 20)


def test_a_bundle_that_does_not_exist_is_refused():
    with pytest.raises(UsageError, match="holds no certificates"):
        run_load(Target("https://127.0.0.1:1", "m", verify="/no/such.pem"), ASKS)

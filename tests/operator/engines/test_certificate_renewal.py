"""The certificate of a namespace's pods is made, and renewed without a gap."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store

from partita_operator.certificates.issuing import Validity, issued, new_authority
from partita_operator.certificates.renewal import (
    KEYS,
    LIFETIME,
    NEXT_CERTIFICATE,
    NEXT_KEY,
    RENEWED_AFTER,
    TRUSTED_BEFORE_USE,
    renewed,
)
from partita_runtime.serving.transport.tls_files import (
    AUTHORITIES_FILE,
    CERTIFICATE_FILE,
    KEY_FILE,
    Credentials,
    TlsFiles,
)

NAME = "partita-ray.vision"
OTHER_NAME = "partita-ray.speech"
START = datetime(2026, 1, 1, tzinfo=UTC)
MADE = renewed({}, NAME, START)


def accepts(one: Mapping[str, str], other: Mapping[str, str], now: datetime) -> bool:
    """Whether a pod with the values of `one` accepts a pod with those of `other`, as a server and as a client."""
    (certificate,) = x509.load_pem_x509_certificates(other[CERTIFICATE_FILE].encode())
    authorities = x509.load_pem_x509_certificates(one[AUTHORITIES_FILE].encode())
    checks = PolicyBuilder().store(Store(authorities)).time(now)
    try:
        checks.build_server_verifier(x509.DNSName(NAME)).verify(certificate, [])
        return x509.DNSName(NAME) in (checks.build_client_verifier().verify(certificate, []).subjects or ())
    except x509.verification.VerificationError:
        return False


def test_pods_accept_each_other_and_no_other_namespace() -> None:
    other = renewed({}, OTHER_NAME, START)
    assert accepts(MADE, MADE, START)
    assert not accepts(MADE, other, START)
    assert not accepts(other, MADE, START)


def test_nobody_can_issue_further_certificates() -> None:
    """The key of the authority is nowhere: every value is a certificate, or the key of the pods'."""
    assert set(MADE) == {AUTHORITIES_FILE, CERTIFICATE_FILE, KEY_FILE}
    assert MADE[KEY_FILE].count("PRIVATE KEY") == 2
    assert "PRIVATE KEY" not in MADE[AUTHORITIES_FILE] + MADE[CERTIFICATE_FILE]


def test_a_certificate_is_renewed_in_two_steps() -> None:
    assert renewed(MADE, NAME, START + RENEWED_AFTER - timedelta(seconds=1)) == MADE

    announced = START + RENEWED_AFTER
    prepared = renewed(MADE, NAME, announced)
    assert prepared[CERTIFICATE_FILE] == MADE[CERTIFICATE_FILE]
    assert prepared[AUTHORITIES_FILE].startswith(MADE[AUTHORITIES_FILE])
    assert renewed(prepared, NAME, announced + TRUSTED_BEFORE_USE - timedelta(seconds=1)) == prepared

    used = renewed(prepared, NAME, announced + TRUSTED_BEFORE_USE)
    assert used == {
        AUTHORITIES_FILE: prepared[AUTHORITIES_FILE],
        CERTIFICATE_FILE: prepared[NEXT_CERTIFICATE],
        KEY_FILE: prepared[NEXT_KEY],
    }
    just_before, after = (renewed(used, NAME, START + LIFETIME - timedelta(seconds=left)) for left in (1, 0))
    assert MADE[AUTHORITIES_FILE] in just_before[AUTHORITIES_FILE]
    assert MADE[AUTHORITIES_FILE] not in after[AUTHORITIES_FILE]


@pytest.mark.parametrize(
    "pause",
    [
        pytest.param(timedelta(hours=1), id="an operator that always runs"),
        pytest.param(timedelta(days=1, hours=7), id="one that runs now and then"),
        pytest.param(timedelta(days=25), id="one that is away for weeks"),
    ],
)
def test_pods_that_do_not_have_the_latest_values_yet_accept_the_others_for_a_year(pause: timedelta) -> None:
    now, values, used = START, MADE, {MADE[CERTIFICATE_FILE]}
    while now < START + timedelta(days=365):
        now += pause
        latest = renewed(values, NAME, now)
        for one, other in ((values, latest), (latest, values), (latest, latest)):
            assert accepts(one, other, now)
        assert set(latest) <= set(KEYS)
        values = latest
        used.add(values[CERTIFICATE_FILE])
    assert len(used) > 4


def with_values(**values: str) -> Callable[[], Mapping[str, str]]:
    names = {"authorities": AUTHORITIES_FILE, "certificate": CERTIFICATE_FILE, "key": KEY_FILE}
    return lambda: {**MADE, **{names[name]: value for name, value in values.items()}}


def unnamed() -> Mapping[str, str]:
    """A certificate without names."""
    authority = new_authority("authority", Validity(START, LIFETIME))
    certificate = issued(authority, "partita-ray", [], Validity(START, LIFETIME), is_client=True)
    return {
        AUTHORITIES_FILE: authority.certificate_pem.decode(),
        CERTIFICATE_FILE: certificate.certificate_pem.decode(),
        KEY_FILE: certificate.key_pem.decode(),
    }


OTHER = renewed({}, NAME, START)


@pytest.mark.parametrize(
    "present",
    [
        pytest.param(with_values(key="damaged"), id="a damaged key"),
        pytest.param(with_values(key=OTHER[KEY_FILE]), id="the key of another certificate"),
        pytest.param(with_values(certificate=""), id="no certificate"),
        pytest.param(with_values(authorities="damaged"), id="damaged authorities"),
        pytest.param(with_values(authorities=OTHER[AUTHORITIES_FILE]), id="another authority"),
        pytest.param(lambda: renewed({}, OTHER_NAME, START), id="of another namespace"),
        pytest.param(lambda: renewed({}, NAME, START - LIFETIME), id="expired"),
        pytest.param(unnamed, id="without a name"),
    ],
)
def test_a_certificate_that_pods_do_not_accept_is_replaced_at_once(present: Callable[[], Mapping[str, str]]) -> None:
    found = renewed(present(), NAME, START)
    assert found[CERTIFICATE_FILE] != present()[CERTIFICATE_FILE]
    assert accepts(found, found, START)


def test_processes_can_use_the_files(tmp_path: Path) -> None:
    for key, value in renewed({}, NAME, datetime.now(UTC)).items():
        (tmp_path / key).write_text(value)
    Credentials(TlsFiles(directory=str(tmp_path), name=NAME)).current()

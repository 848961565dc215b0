import pytest

from trtgate.reference.faults import FaultError, Faults, parse_faults


def test_several_faults_are_joined():
    faults = parse_faults(["wrong-output:8", "wrong-output:4", "error-rate:10%", "slow:0.5", "early-health"])
    assert faults == Faults(wrong_output=frozenset({4, 8}), error_rate=0.1, slow=0.5, early_health=True)


def test_no_fault_does_nothing():
    assert parse_faults([]) == Faults()


def test_a_wrong_bucket_is_wrong_on_every_replay_of_it():
    faults = parse_faults(["wrong-output:8"])
    assert [faults.wrong("decode", 8, size) for size in (5, 8)] == [True, True]
    assert not faults.wrong("decode", 4, 4)
    assert not faults.wrong("tokens", 8, 8)


def test_a_padded_fault_spares_exact_sizes():
    faults = parse_faults(["wrong-tokens:32:padded"])
    assert [faults.wrong("tokens", 32, size) for size in (31, 32)] == [True, False]


@pytest.mark.parametrize(
    "spec",
    [
        "explode",
        "wrong-output",
        "wrong-output:x",
        "wrong-output:8:sometimes",
        "slow",
        "slow:-1",
        "crash-at-start:1",
        "",
    ],
)
def test_what_is_no_fault_is_refused_with_the_list_of_faults(spec):
    with pytest.raises(FaultError, match="wrong-output:BUCKET"):
        parse_faults([spec])

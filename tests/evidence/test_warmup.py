from tests.answers import answer
from trtgate.evidence.proofs import Visited
from trtgate.evidence.staircase import Visit
from trtgate.evidence.warmup import unanswered


def test_failed_warm_up_requests_are_held_against_the_limit_of_the_gate() -> None:
    failed = Visited(Visit("decode", (2,), ()), (answer(), answer(error="http 500")))
    whole = Visited(Visit("tokens", (8,), ()), (answer(), answer()))
    assert unanswered([[failed, whole]], 0.0) == "1 of 4 warm-up requests failed"
    assert unanswered([[failed, whole]], 0.25) is None
    assert unanswered([[whole]], 0.0) is None

from tests.answers import answer
from trtgate.evidence.answers import agree, count_wrong


def test_without_tolerance_only_identical_tokens_agree() -> None:
    assert agree(answer((1, 2, 3)), answer((1, 2, 3)), 0.0) is True
    assert agree(answer((1, 2, 3)), answer((1, 9, 3)), 0.0) is False


def test_a_shorter_answer_is_compared_over_its_length() -> None:
    assert agree(answer((1, 2, 3)), answer((1, 2)), 0.0) is True
    assert agree(answer((1, 2, 3)), answer((2,)), 0.0) is False


def test_failed_or_unknown_answers_cannot_be_told() -> None:
    assert agree(answer(), answer(error="reset"), 0.0) is None
    assert agree(answer(None), answer(), 0.0) is None
    assert agree(answer(()), answer(()), 0.0) is None


def test_with_a_tolerance_equally_sure_runs_may_part() -> None:
    one, other = answer((1, 2), logprobs=(-0.1, -1.00)), answer((1, 3), logprobs=(-0.1, -1.04))
    assert agree(one, other, 0.05) is True
    assert agree(one, other, 0.03) is False


def test_with_a_tolerance_equal_tokens_of_another_likelihood_are_wrong() -> None:
    assert agree(answer((1,), logprobs=(-0.1,)), answer((1,), logprobs=(-3.0,)), 0.05) is False


def test_what_comes_after_the_first_difference_does_not_count() -> None:
    one = answer((1, 2, 3), logprobs=(-0.1, -1.0, -0.1))
    other = answer((1, 9, 4), logprobs=(-0.1, -1.0, -9.0))
    assert agree(one, other, 0.05) is True


def test_a_tolerance_without_log_probabilities_cannot_be_told() -> None:
    assert agree(answer((1,)), answer((1,)), 0.05) is None


def test_a_tolerance_with_too_few_log_probabilities_cannot_be_told() -> None:
    assert agree(answer((1, 2), logprobs=()), answer((1, 2), logprobs=()), 0.05) is None
    assert agree(answer((1, 2), logprobs=(-0.1,)), answer((1, 2), logprobs=(-0.1,)), 0.05) is None


def test_runs_that_are_sure_of_different_tokens_disagree_however_equally_sure_they_are() -> None:
    assert agree(answer((1,), logprobs=(-0.01,)), answer((2,), logprobs=(-0.01,)), 0.3) is False


def test_no_number_is_wrong_where_only_the_candidate_has_it_and_unknown_otherwise() -> None:
    nan = float("nan")
    assert agree(answer((1,), logprobs=(-0.1,)), answer((1,), logprobs=(nan,)), 0.3) is False
    assert agree(answer((1,), logprobs=(nan,)), answer((1,), logprobs=(-0.1,)), 0.3) is None


def test_without_tokens_log_probabilities_alone_are_compared() -> None:
    one = answer(None, logprobs=(-0.1, -0.2))
    assert agree(one, answer(None, logprobs=(-0.1, -0.25)), 0.1) is True
    assert agree(one, answer(None, logprobs=(-0.1, -3.0)), 0.1) is False
    assert agree(one, answer(None, logprobs=(-0.1, -0.2)), 0.0) is None
    assert agree(one, answer(None), 0.1) is None


def test_without_tokens_nothing_is_told_of_what_follows_a_place_where_they_may_have_parted() -> None:
    one = answer(None, logprobs=(-1.0, -0.1))
    assert agree(one, answer(None, logprobs=(-1.0, -5.0)), 0.1) is None
    assert agree(one, answer(None, logprobs=(-5.0, -0.1)), 0.1) is False


def test_counting_leaves_out_what_cannot_be_told() -> None:
    references = [answer((1,)), answer((2,)), answer((3,))]
    assert count_wrong(references, [answer((1,)), answer((9,)), answer(error="http 500")], 0.0) == (2, 1)

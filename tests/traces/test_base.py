from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from trtgate.errors import TraceError, UsageError
from trtgate.traces.base import ColumnNames, Ranges, Steps, Trace, TraceSource

SOURCE = TraceSource(name="a.csv", sha256="0" * 64, format="csv", read=3, kept=3, span_s=4.0, time_unit="s")


def trace(arrival_s=(0.0, 1.0, 4.0), prompt=(10, 20, 30), output=(1, 2, 3)):
    return Trace(np.array(arrival_s, float), np.array(prompt), np.array(output), (SOURCE,))


def test_a_row_that_is_neither_kept_nor_dropped_is_refused():
    with pytest.raises(ValidationError, match="3 rows read, but 2 kept"):
        TraceSource(name="a", sha256="", format="csv", read=3, kept=2, span_s=0, time_unit="s")


def test_dropped_rows_balance_the_books():
    source = SOURCE.model_copy(update={"read": 5, "dropped": {"no output tokens": 2}})
    assert TraceSource.model_validate_json(source.model_dump_json()) == source


def test_negative_counts_are_refused():
    with pytest.raises(ValidationError, match="negative"):
        TraceSource(
            name="a", sha256="", format="csv", read=0, kept=1, dropped={"x": -1}, span_s=0, time_unit="s"
        )


def test_unknown_keys_of_a_source_are_refused():
    with pytest.raises(ValidationError, match="extra"):
        TraceSource.model_validate(SOURCE.model_dump() | {"colour": "red"})


def test_columns_cannot_be_written_to():
    one = trace()
    with pytest.raises(ValueError, match="read-only"):
        one.prompt_tokens[0] = 7
    with pytest.raises(FrozenInstanceError):
        one.sources = ()


@pytest.mark.parametrize(
    "columns",
    [
        {"arrival_s": ()},
        {"arrival_s": (1.0, 2.0, 3.0)},
        {"arrival_s": (0.0, 2.0, 1.0)},
        {"prompt": (0, 1, 2)},
        {"output": (1, 2)},
    ],
)
def test_a_trace_that_breaks_its_promise_is_refused(columns):
    with pytest.raises(TraceError):
        trace(**columns)


def test_rate_counts_gaps_and_not_fence_posts():
    assert (len(trace()), trace().span_s, trace().rate) == (3, 4.0, 0.5)


def test_requests_that_all_arrive_at_once_have_no_rate():
    assert trace(arrival_s=(0, 0, 0)).rate == 0.0


def test_scaling_rounds_lengths_up_and_keeps_arrivals():
    scaled = trace(prompt=(10, 1, 3), output=(1, 2, 3)).scaled(1.1)
    assert scaled.prompt_tokens.tolist() == [11, 2, 4]
    assert scaled.scaled(0.001).output_tokens.tolist() == [1, 1, 1]
    assert scaled.arrival_s.tolist() == [0, 1, 4]


def test_speeding_up_halves_the_gaps():
    assert trace().sped_up(2).arrival_s.tolist() == [0, 0.5, 2]


@pytest.mark.parametrize("factor", [0, -1, float("nan"), float("inf")])
def test_a_factor_must_be_a_positive_number(factor):
    with pytest.raises(TraceError, match="factor"):
        trace().scaled(factor)
    with pytest.raises(TraceError, match="factor"):
        trace().sped_up(factor)


def test_a_window_takes_its_start_and_leaves_its_end():
    part = trace().between(1, 4)
    assert (part.arrival_s.tolist(), part.prompt_tokens.tolist()) == ([0], [20])


def test_a_window_without_requests_is_refused_with_the_span():
    with pytest.raises(TraceError) as caught:
        trace().between(5, 9)
    assert caught.value.hint == "the trace spans 4 s"


@given(st.lists(st.integers(0, 50), min_size=2, max_size=40), st.floats(0.01, 0.99))
def test_a_split_loses_no_request_and_keeps_time_apart(seconds, fraction):
    arrival = np.sort(np.array(seconds, float))
    whole = trace(arrival - arrival[0], range(1, len(seconds) + 1), range(1, len(seconds) + 1))
    try:
        earlier, later = whole.split(fraction)
    except TraceError:
        return
    assert [*earlier.prompt_tokens, *later.prompt_tokens] == whole.prompt_tokens.tolist()
    assert earlier.span_s < fraction * whole.span_s or whole.span_s == 0


@pytest.mark.parametrize("fraction", [0, 1, -0.5, 0.000001])
def test_a_split_must_leave_two_parts(fraction):
    with pytest.raises(TraceError):
        trace(arrival_s=(0, 0, 0)).split(fraction)


def test_clipping_cuts_the_answer_before_the_prompt():
    cut = trace(prompt=(10, 95, 300), output=(50, 50, 50)).clipped(100)
    assert cut.prompt_tokens.tolist() == [10, 95, 99]
    assert cut.output_tokens.tolist() == [50, 5, 1]
    assert cut.sources[0].notes == ("2 of 3 requests cut to 100 tokens",)


def test_clipping_that_cuts_nothing_changes_nothing():
    one = trace()
    assert one.clipped(1000) is one


def test_a_sequence_of_one_token_holds_no_request():
    with pytest.raises(TraceError, match="hold no request"):
        trace().clipped(1)


def test_the_digest_sees_every_column():
    digests = {
        trace().digest,
        trace(arrival_s=(0, 1, 5)).digest,
        trace(prompt=(10, 20, 31)).digest,
        trace(output=(1, 2, 4)).digest,
    }
    assert len(digests) == 4
    assert trace().digest == trace().digest


def test_steps_tell_requests_from_tokens():
    steps = Steps(
        iteration=np.array([1, 2, 3]),
        rank=np.zeros(3, np.int16),
        decode=np.array([True, False, True]),
        size=np.array([4, 700, 5], np.int32),
        padded=np.array([8, 0, 8], np.int32),
        step_ms=np.array([1, 2, 3], np.float32),
        sources=(SOURCE,),
    )
    assert (steps.decode_size.tolist(), steps.tokens_size.tolist(), len(steps)) == ([4, 5], [700], 3)


def test_ranges_count_their_values():
    ranges = Ranges("m", np.array([0.0, 1.0]), np.array([1.0, np.inf]), np.array([3, 4]), np.nan, (SOURCE,))
    assert len(ranges) == 7


def test_column_names_are_read_as_the_command_line_spells_them():
    assert ColumnNames.parse("time=at, prompt=in,output=out") == ColumnNames("at", "in", "out")
    assert ColumnNames.parse("prompt=in,output=out").time is None


@pytest.mark.parametrize("text", ["", "time=a", "prompt=a,output=", "prompt=a,output=b,x=c", "prompt"])
def test_half_named_columns_are_refused(text):
    with pytest.raises(UsageError, match="does not name the columns"):
        ColumnNames.parse(text)

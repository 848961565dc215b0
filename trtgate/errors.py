"""Every error a user can meet, as one family whose members carry their exit code.

    TrtgateError ................ 1   unexpected: no verdict was reached
    ├── UsageError .............. 2   a wrong option, file or setting
    │   └── TraceError .......... 2   traffic data that cannot be read
    ├── RuntimeFailedError ...... 10  the candidate did not start, died or answered wrongly
    ├── InvalidMeasurementError . 12  nothing can be concluded: the measurement is at fault
    ├── IntegrityError .......... 20  a digest does not match
    ├── IncompatibleError ....... 21  the release does not fit this platform
    ├── NotEligibleError ........ 22  there is no release that may be used
    ├── UnhealthyError .......... 23  the target failed its trial; the old state was kept
    └── LockedError ............. 24  another operation holds the lock

`FAIL` (10) and `INCONCLUSIVE` (11) are verdicts, not errors; `130` is an interrupt.
"""

from enum import IntEnum


class ExitCode(IntEnum):
    """What the process says to CI; the table in the README explains each."""

    DONE = 0
    ERROR = 1
    USAGE = 2
    FAIL = 10
    INCONCLUSIVE = 11
    INVALID = 12
    INTEGRITY = 20
    INCOMPATIBLE = 21
    NOT_ELIGIBLE = 22
    UNHEALTHY = 23
    LOCKED = 24
    INTERRUPTED = 130


class TrtgateError(Exception):
    """One fact for the user and, in `hint`, the next step to take."""

    exit_code = ExitCode.ERROR

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(TrtgateError):
    """A wrong option, file or setting."""

    exit_code = ExitCode.USAGE


class TraceError(UsageError):
    """Traffic data that cannot be read as what it claims to be."""


class RuntimeFailedError(TrtgateError):
    """The runtime under test did not start, died, hung or answered wrongly."""

    exit_code = ExitCode.FAIL


class InvalidMeasurementError(TrtgateError):
    """The measurement itself is at fault, so that nothing can be concluded from it."""

    exit_code = ExitCode.INVALID


class IntegrityError(TrtgateError):
    """A file differs from the digest that was sealed for it."""

    exit_code = ExitCode.INTEGRITY


class IncompatibleError(TrtgateError):
    """A release was made for another platform than this one."""

    exit_code = ExitCode.INCOMPATIBLE


class NotEligibleError(TrtgateError):
    """No release exists that may be promoted or gone back to."""

    exit_code = ExitCode.NOT_ELIGIBLE


class UnhealthyError(TrtgateError):
    """The target failed its trial start; what was in service stays in service."""

    exit_code = ExitCode.UNHEALTHY


class LockedError(TrtgateError):
    """Another operation on the same releases is under way."""

    exit_code = ExitCode.LOCKED

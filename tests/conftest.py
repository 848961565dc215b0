"""What holds for every test: nothing set outside reaches it, it has a deadline, and no process outlives the suite."""

import faulthandler
import os
import re
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from tests.leftovers import adopt_orphans, ended, family, reap

AT_START = pytest.StashKey[set[psutil.Process]]()
# What a person, a terminal or a CI runner may have set and no result may depend on.
OUTSIDE = re.compile(
    r"TRTGATE_(?!VLLM$)\w+|GITHUB_\w+|GITLAB_\w+|CI|CI_\w+|XDG_\w+|HOME|MPL\w+|HF_\w+|(?i:\w+_proxy)"
    r"|TERM|COLORTERM|COLUMNS|LINES|NO_COLOR|FORCE_COLOR|CLICOLOR\w*|LANG|LANGUAGE|LC_\w+|TZ"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("hang_grace_s", "seconds after a deadline at which the whole run is ended", default="60")


def pytest_configure(config: pytest.Config) -> None:
    for name in filter(OUTSIDE.fullmatch, list(os.environ)):
        del os.environ[name]
    home = tempfile.TemporaryDirectory(prefix="trtgate-home-")
    config.add_cleanup(home.cleanup)
    os.environ["HOME"] = home.name
    time.tzset()
    adopt_orphans()
    config.stash[AT_START] = family()
    config.pluginmanager.register(Watchdog(config))


class Watchdog:
    """Ends what `pytest-timeout` cannot: a hang that holds the interpreter, or one outside of a test's own time.

    Its timer runs below Python: it prints the stack of every thread and exits with 1. Whatever the test had started is
    then nobody's to end, which is why this comes only a while after the deadline that fails the test alone.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.test_s = float(config.getini("timeout"))
        self.grace_s = float(config.getini("hang_grace_s"))
        self.ends = time.monotonic() + float(config.getini("session_timeout"))
        self.stderr = os.dup(sys.__stderr__.fileno())
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
        self.arm(self.ends)

    def arm(self, allowed_s: float) -> None:
        left_s = max(min(allowed_s, self.ends - time.monotonic()), 0)
        faulthandler.dump_traceback_later(left_s + self.grace_s, exit=True, file=self.stderr)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        marker = item.get_closest_marker("timeout")
        self.arm(marker.args[0] if marker else self.test_s)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        self.pytest_runtest_setup(item)  # anew: pytest stops every timer at a failure

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        self.arm(0)  # for the last fixtures, and for threads that keep the interpreter from ending


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Name and end every process that is left; one is enough for the suite to fail."""
    left = ended(family() - session.config.stash[AT_START], within_s=2.0)
    if left:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        reporter = session.config.pluginmanager.get_plugin("terminalreporter")
        for line in left:
            reporter.write_line(f"left running by a test, now killed: {line}", red=True)
    reap()


@contextmanager
def foreground() -> Iterator[None]:
    """Signals as in the foreground of a shell, for us and for what is started meanwhile, whatever we inherited."""
    handlers = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: signal.SIG_DFL,
        signal.SIGHUP: signal.SIG_DFL,
    }
    mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, handlers)
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


@pytest.fixture
def default_signals() -> Iterator[None]:
    """For a test that signals itself, or starts a process that it signals."""
    with foreground():
        yield


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port that is held and not listened on: whoever connects is refused, whatever else runs here."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]

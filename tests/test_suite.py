"""The suite itself: it runs whatever the shell was like, and ends whatever hangs or is left."""

import os
import re
import signal
import subprocess
import sys
from multiprocessing import get_context, resource_tracker
from pathlib import Path

import psutil
import pytest

from tests.conftest import OUTSIDE, foreground
from tests.leftovers import family, leaves_nothing

pytestmark = pytest.mark.timeout(60)  # starts suites

ROOT = Path(__file__).parents[1]
SLEEPER = [sys.executable, "-c", "import time; time.sleep(600)"]
# Forks twice, so that it is nobody's child; the test waits until it has.
DAEMON = """
import os, subprocess, sys
def test_a():
    code = "import os, time; os.fork() and os._exit(0); os.setsid(); time.sleep(600)"
    subprocess.run([sys.executable, "-c", code], check=True)
"""


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A suite of its own under our root `conftest.py`, where a test has half a second."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makeconftest((ROOT / "tests" / "conftest.py").read_text())
    pytester.makeini("[pytest]\naddopts = -p pytest_timeout\ntimeout = 0.5\nsession_timeout = 30\n")
    return pytester


def test_a_hang_fails_its_test_with_its_stack_and_the_next_test_runs(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        "import threading\ndef test_a():\n    threading.Event().wait()\ndef test_b():\n    pass\n"
    )
    result = suite.runpytest_subprocess()
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(["*threading.Event().wait()*", "*Failed: Timeout*"])


@pytest.mark.parametrize(
    "body",
    [
        "import itertools\ndef test_a():\n    sum(itertools.repeat(0))\n",
        "import pytest, time\n@pytest.fixture\ndef f():\n    yield\n    time.sleep(60)\ndef test_a(f):\n    assert 0\n",
        "import threading, time\ndef test_a():\n    threading.Thread(target=time.sleep, args=(60,)).start()\n",
    ],
    ids=["in C", "in a teardown after a failure", "at the exit"],
)
def test_a_hang_that_no_signal_ends_ends_the_run_with_its_stack(suite: pytest.Pytester, body: str) -> None:
    suite.makepyfile(body)
    result = suite.runpytest_subprocess("-o", "hang_grace_s=0.5")
    assert result.ret == 1
    result.stderr.fnmatch_lines(["Timeout (*", "Thread 0x*", "  File *"])


def test_a_suite_that_takes_too_long_in_all_stops_between_two_tests(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        "import time\nimport pytest\n@pytest.mark.parametrize('n', range(99))\ndef test_a(n): time.sleep(.2)\n"
    )
    result = suite.runpytest_subprocess("-o", "session_timeout=0.5")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*session-timeout: 0.5 sec exceeded*"])


def test_a_daemon_that_a_test_leaves_is_named_ended_and_fails_the_suite(suite: pytest.Pytester) -> None:
    suite.makepyfile(DAEMON)
    result = suite.runpytest_subprocess()
    result.assert_outcomes(passed=1)
    assert result.ret == 1
    (pid,) = re.findall(
        r"left running by a test, now killed: (\d+): .*time.sleep\(600\)", result.stdout.str()
    )
    assert not psutil.pid_exists(int(pid))  # not as a zombie either


def test_a_process_is_a_leftover_by_its_parent_whatever_it_is_called() -> None:
    with pytest.raises(AssertionError, match=r"still running: \d+: .*time\.sleep\(600\)"), leaves_nothing():
        child = subprocess.Popen(SLEEPER)
    with leaves_nothing():  # it was there before
        assert psutil.Process(child.pid) in family()
    child.kill()
    child.wait()
    assert psutil.Process(os.getpid()) not in family()


def test_pythons_own_helper_of_spawned_processes_is_no_leftover() -> None:
    with leaves_nothing():
        resource_tracker.ensure_running()
        process = get_context("spawn").Process(target=os.getpid)
        process.start()
        process.join()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_child_can_be_signalled_where_the_run_itself_ignores_and_blocks_the_signal(number: int) -> None:
    before, mask = signal.signal(number, signal.SIG_IGN), signal.pthread_sigmask(signal.SIG_BLOCK, [number])
    try:
        with foreground(), subprocess.Popen(SLEEPER) as child:
            child.send_signal(number)
            assert child.wait(10) in {-number, 1}  # 1: Python was up and made it a KeyboardInterrupt
        assert signal.getsignal(number) == signal.SIG_IGN
    finally:
        signal.signal(number, before)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


@pytest.mark.parametrize(
    "name",
    [
        "HOME",
        "COLUMNS",
        "NO_COLOR",
        "FORCE_COLOR",
        "TERM",
        "CI",
        "TZ",
        "LC_ALL",
        "https_proxy",
        "GITHUB_STEP_SUMMARY",
        "TRTGATE_STORE",
        "XDG_CACHE_HOME",
    ],
)
def test_no_test_sees_what_the_shell_has_set(name: str) -> None:
    assert OUTSIDE.fullmatch(name)
    assert name == "HOME" or name not in os.environ


@pytest.mark.parametrize("name", ["PATH", "TRTGATE_VLLM", "CUDA_VISIBLE_DEVICES", "TMPDIR"])
def test_what_the_machine_needs_is_left(name: str) -> None:
    assert not OUTSIDE.fullmatch(name)


def test_a_cache_below_home_is_gone_with_the_suite(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        "from pathlib import Path\ndef test_a():\n    (Path.home() / 'x').write_text('')\n    print(Path.home())\n"
    )
    result = suite.runpytest_subprocess("-s")
    (home,) = re.findall(r"/\S+trtgate-home-\S+", result.stdout.str())
    assert not Path(home).exists()

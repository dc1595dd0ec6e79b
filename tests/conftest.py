"""What every test runs under."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

sys.path.insert(0, str(Path(__file__).parent / "in_children"))
import no_posix
import start_method_of_tests

# A busy machine takes longer: no example fails because of that.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")

# All that is made while tests are collected stays: looking for garbage in it took a quarter of that time.
gc.disable()

# A shell starts what is in the background with Ctrl-C ignored, which processes that tests start would inherit.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Tests run in several processes, and most start more: on one thread each, they do not wait for each other's threads.
os.environ.setdefault("OMP_NUM_THREADS", "1")

#: Forks that were counted before a test began.
_BEFORE = pytest.StashKey[int]()

#: Where pytest's cache keeps which tests fork, by their names.
_FORKING = "start-method/forking"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let a run choose how processes are started, and repeat only what that can change."""
    group = parser.getgroup("start methods")
    group.addoption(
        "--start-method",
        choices=multiprocessing.get_all_start_methods(),
        help="the default start method of the tests' process and of every Python process that tests start",
    )
    group.addoption(
        "--only-forking",
        type=int,
        metavar="MOST",
        help="only tests that forked 1 to MOST times when they last ran under fork, and tests that never did run",
    )
    group.addoption(
        "--one-of-each",
        action="store_true",
        help="of the sets of parameters that each test function is left with, only the first that is not skipped",
    )
    group.addoption(
        "--stand-in-device",
        action="store_true",
        help="give the tests' process a device written in Python, as the accelerator; tests of devices then use it too",
    )
    group.addoption(
        "--no-posix",
        action="store_true",
        help="take from both packages what only POSIX systems have; processes are then started by spawn",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Set the start method here, and have processes that tests start set it."""
    path = [str(Path(__file__).parent / "in_children"), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    method = config.getoption("--start-method")
    if config.getoption("--no-posix"):
        os.environ[no_posix.VARIABLE] = "1"
        no_posix.take_away()
    elif method is not None:
        os.environ[start_method_of_tests.METHOD] = method
        start_method_of_tests.use(method)
    elif "forkserver" in multiprocessing.get_all_start_methods():
        multiprocessing.set_forkserver_preload(start_method_of_tests.PRELOADED)
    if config.getoption("--stand-in-device"):
        import stand_in_device

        stand_in_device.register()
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_KnownForks(config), "known-forks")
    if multiprocessing.get_all_start_methods()[0] == "fork":
        config.pluginmanager.register(_Forks(), "forks")


def pytest_collection_finish() -> None:
    """What was imported stays: collections of garbage need not look at it, nor processes that are forked copy it."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what no start method can change, and skip tests that are about another start method."""
    method = multiprocessing.get_all_start_methods()[0]
    for item in items:
        marker = item.get_closest_marker("start_method")
        if marker is not None and method not in marker.args:
            reason = f"only under {' or '.join(marker.args)}: {marker.kwargs['reason']}"
            item.add_marker(pytest.mark.skip(reason=reason))
    most = config.getoption("--only-forking")
    if most is not None:
        assert config.cache is not None
        forking: dict[str, int] = config.cache.get(_FORKING, {})
        _keep(config, items, {item for item in items if 1 <= forking.get(item.nodeid, 1) <= most})
    if config.getoption("--one-of-each"):
        runs = sorted(items, key=lambda item: item.get_closest_marker("skip") is not None)
        first = {item.nodeid.partition("[")[0]: item for item in reversed(runs)}
        _keep(config, items, set(first.values()))


def _keep(config: pytest.Config, items: list[pytest.Item], chosen: set[pytest.Item]) -> None:
    """Deselect all other items."""
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = [item for item in items if item in chosen]


class _Forks:
    """Count how often each test, the fixtures it uses and the processes it starts fork."""

    def __init__(self) -> None:
        handle, path = tempfile.mkstemp(prefix="forks-")
        os.close(handle)
        os.environ[start_method_of_tests.FORKS] = path
        start_method_of_tests.note_forks(path)
        self._noted = Path(path)
        self._fixtures: dict[Any, int] = {}

    def _count(self) -> int:
        return self._noted.stat().st_size

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        """A fixture may outlive the first test that uses it: what it forks, it forks for all of them."""
        before = self._count()
        result = yield
        self._fixtures[fixturedef] = self._count() - before
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Iterator[None]:
        """Count from before the test's fixtures are set up."""
        item.stash[_BEFORE] = self._count()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: Any, call: pytest.CallInfo[Any]) -> Iterator[None]:
        """Send the answer with the last report of the test, also from one process of several."""
        report = yield
        if call.when == "teardown":
            fixtures = {one for group in item._fixtureinfo.name2fixturedefs.values() for one in group}
            forks = self._count() - item.stash[_BEFORE] + sum(self._fixtures.get(one, 0) for one in fixtures)
            report.user_properties.append(("forks", forks))
        return report

    def pytest_unconfigure(self) -> None:
        """Remove what was noted."""
        self._noted.unlink()


class _KnownForks:
    """Remember which tests fork from one run to the next."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._seen: dict[str, int] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect the answers of all processes."""
        for name, value in report.user_properties:
            if name == "forks":
                self._seen[report.nodeid] = value

    def pytest_sessionfinish(self) -> None:
        """Keep them beside those of tests that did not run now."""
        cache = getattr(self._config, "cache", None)  # not there with `-p no:cacheprovider`
        if self._seen and cache is not None:
            cache.set(_FORKING, {**cache.get(_FORKING, {}), **self._seen})

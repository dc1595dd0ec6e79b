"""Takes from the two packages what only POSIX systems have, as if they ran elsewhere.

Only code of the packages misses it: the standard library, PyTorch and psutil ask for the platform and would not work
without what they then rely on. What a system without POSIX has instead is stood in for where the packages use it.
"""

from __future__ import annotations

import builtins
import ctypes
import errno
import multiprocessing
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import psutil

#: Name of the variable that processes started by tests inherit.
VARIABLE = "CHIRP_TESTS_NO_POSIX"

PACKAGES = ("chirp_migrate", "chirpid_patch")

MODULES = frozenset({"fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"})

#: Names of `os` that Windows lacks.
_NOT_IN_OS = """
    O_ASYNC O_CLOEXEC O_DIRECT O_DIRECTORY O_DSYNC O_NDELAY O_NOATIME O_NOCTTY O_NOFOLLOW O_NONBLOCK O_PATH O_RSYNC
    O_SYNC O_TMPFILE P_ALL P_PGID P_PID WCOREDUMP WIFEXITED WIFSIGNALED WEXITSTATUS WTERMSIG WNOHANG chown chroot
    confstr ctermid eventfd fchdir fchmod fchown fdatasync fork forkpty fstatvfs getegid geteuid getgid getgroups
    getloadavg getpgid getpgrp getpriority getresuid getsid getuid getxattr initgroups killpg lchown lockf major
    memfd_create minor mkfifo mknod nice openpty pathconf pidfd_open pipe2 posix_fadvise posix_fallocate posix_spawn
    pread preadv pwrite pwritev readv register_at_fork sched_getaffinity sched_setaffinity sched_yield sendfile setgid
    setpgid setpriority setsid setuid splice statvfs sync sysconf sysconf_names tcgetpgrp ttyname uname wait wait3
    wait4 waitid writev
"""
#: Names of `signal` that Windows has.
_IN_SIGNAL = """
    SIGABRT SIGFPE SIGILL SIGINT SIGSEGV SIGTERM SIG_DFL SIG_IGN Handlers Signals default_int_handler getsignal
    raise_signal set_wakeup_fd signal strsignal valid_signals
"""
_FILES = ("/proc/", "/sys/", "/dev/shm/")

#: Modules that open files for others.
_OPENERS = frozenset({"pathlib", "pathlib._local", "io", "codecs", "os", "tokenize", "mmap", "shutil", __name__})


class _Part(ModuleType):
    """A module without some of its names, and with others in their place."""

    def __init__(self, whole: ModuleType, has: Callable[[str], bool], **instead: Any) -> None:
        super().__init__(whole.__name__)
        vars(self).update(instead)
        vars(self)["_whole"], vars(self)["_has"] = whole, has

    def __getattr__(self, name: str) -> Any:
        if not self._has(name):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r} without POSIX")
        return getattr(self._whole, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._whole, name, value)  # what a test replaces is seen by all


class _Path(type(pathlib.Path())):  # type: ignore[misc]
    """A path whose relative ones, which are mostly text, have the separators of Windows."""

    def relative_to(self, *arguments: Any, **options: Any) -> Any:
        return pathlib.PureWindowsPath(super().relative_to(*arguments, **options))


class _CDLL(ctypes.CDLL):
    """Windows has no library that stands for the whole process."""

    def __init__(self, name: str | None, *arguments: Any, **options: Any) -> None:
        if name is None:
            raise TypeError("bad argument type for built-in operation")
        super().__init__(name, *arguments, **options)


class _Process(psutil.Process):
    """Windows' process information has the peak of a process."""

    def memory_info(self) -> Any:
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return SimpleNamespace(**super().memory_info()._asdict(), peak_wset=peak)


class _Popen(subprocess.Popen):  # type: ignore[type-arg]
    """Windows' processes inherit handles that are listed, and have no sessions."""

    def __init__(
        self, *arguments: Any, startupinfo: Any = None, start_new_session: bool = False, **options: Any
    ) -> None:
        assert not options.get("pass_fds") and not options.get("preexec_fn"), "not supported on Windows"
        handles = startupinfo.lpAttributeList["handle_list"] if startupinfo else ()
        assert all(map(os.get_inheritable, handles)), "Windows refuses to start it"
        super().__init__(*arguments, pass_fds=handles, **options)


def _msvcrt() -> ModuleType:
    """Windows' call that locks a file, by the one that is taken away."""
    import fcntl

    def locking(descriptor: int, mode: int, count: int) -> None:
        assert (mode, count) == (2, 1)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    module = ModuleType("msvcrt")
    vars(module).update(locking=locking, LK_NBLCK=2)
    return module


def take_away() -> None:
    """Take it from the packages in this process, and leave spawn as the only start method."""
    not_in_os, in_signal = set(_NOT_IN_OS.split()), set(_IN_SIGNAL.split())
    context = multiprocessing.context
    context._default_context._default_context = context._default_context.get_context("spawn")
    multiprocessing.get_all_start_methods = lambda: ["spawn"]
    context._concrete_contexts = {"spawn": context._concrete_contexts["spawn"]}
    parts = {
        "msvcrt": _msvcrt(),
        "os": _Part(os, lambda name: name not in not_in_os, set_handle_inheritable=os.set_inheritable),
        "signal": _Part(signal, lambda name: name in in_signal or name.startswith("_")),
        "pathlib": _Part(pathlib, lambda name: True, PurePath=pathlib.PureWindowsPath, Path=_Path),
        "psutil": _Part(psutil, lambda name: True, Process=_Process),
        "subprocess": _Part(subprocess, lambda name: True, Popen=_Popen, STARTUPINFO=SimpleNamespace),
        "ctypes": _Part(ctypes, lambda name: True, CDLL=_CDLL),
    }
    whole_import = builtins.__import__

    def import_part(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
        if level or not _is_ours((globals or {}).get("__name__", "")):
            return whole_import(name, globals, locals, fromlist, level)
        if name.partition(".")[0] in MODULES:
            raise ModuleNotFoundError(f"No module named {name!r} without POSIX", name=name)
        return parts.get(name) or whole_import(name, globals, locals, fromlist, level)

    builtins.__import__ = import_part
    sys.addaudithook(_refuse_files)


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] in PACKAGES


def _refuse_files(event: str, arguments: tuple[Any, ...]) -> None:
    """Hide the files with which Linux describes itself from the packages, whoever opens them for a package."""
    if event not in ("open", "os.listdir", "os.scandir") or not isinstance(arguments[0], str | bytes):
        return
    path = os.fsdecode(arguments[0])
    if path.startswith(_FILES):
        frame = sys._getframe(1)
        while frame is not None and frame.f_globals.get("__name__") in _OPENERS:
            frame = frame.f_back  # type: ignore[assignment]
        if frame is not None and _is_ours(frame.f_globals.get("__name__", "")):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)

"""A lock that permits only one process of this program at a time in a project.

The lock is a file lock of the operating system, so the system releases the lock when the process ends. The text in the
lock file names the process that holds the lock, by process id and machine. Error messages name this process.

Some network file systems have no locks. On these file systems, the lock counts as held if the process that the lock
file names is still running. A process on another machine counts as running.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

from chirp_migrate.errors import WriteRefused
from chirp_migrate.source.files import remove_if_exists

LOCK_NAME = "lock"

#: Offset of the locked byte. The byte is far behind the text, because on Windows other processes cannot read locked
#: bytes, but must read the text.
_LOCKED_BYTE = 1 << 20

_HELD = {errno.EACCES, errno.EAGAIN, errno.EDEADLK}
#: Error number that Windows returns if a program removes an open file.
_IN_USE = 32
_UNSUPPORTED = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK}

#: Number of attempts to create the folder and the lock file. Other processes may remove both between two attempts.
_ATTEMPTS = 50


@contextlib.contextmanager
def hold_lock(folder: Path) -> Iterator[None]:
    """Hold the lock in ``folder`` during a ``with`` block.

    A missing folder is created. At the end of the block, the folder is removed if nothing is in the folder.

    Raises:
        WriteRefused: another process holds the lock, or ``folder`` is a link or not a folder.
        OSError: the folder or the lock cannot be written.
    """
    descriptor = _acquire_lock(folder)
    try:
        yield
    finally:
        _release_lock(folder, descriptor)


def _lock_held_error(folder: Path, holder: tuple[int, str] | None) -> WriteRefused:
    who = "" if holder is None else f" (process {holder[0]} on {holder[1]})"
    return WriteRefused(
        f"another chirp-migrate{who} is running in {folder.parent}: wait for its end. "
        f"If no such process is running, remove {folder / LOCK_NAME}."
    )


def _acquire_lock(folder: Path) -> int:
    path = folder / LOCK_NAME
    for _ in range(_ATTEMPTS):
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
        try:
            if not stat.S_ISDIR(folder.lstat().st_mode):
                raise WriteRefused(
                    f"{folder} is not a folder, but chirp-migrate stores its journal there: move it to another place."
                )
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
        except FileNotFoundError:  # the process that held the lock has just removed the folder
            continue
        except OSError:
            with contextlib.suppress(OSError):
                folder.rmdir()  # succeeds only if the folder is empty, as after `mkdir` above
            raise
        try:
            if not _try_lock(descriptor):
                raise _lock_held_error(folder, _read_holder(descriptor))
            # After this process opened the file, the previous holder of the lock may have removed the file.
            ours = _is_same_file(descriptor, path)
        except BaseException:
            os.close(descriptor)
            raise
        if ours:
            try:
                _write_holder(descriptor)
            except BaseException:  # for example, the disk is full: remove the lock file and the folder
                _release_lock(folder, descriptor)
                raise
            return descriptor
        os.close(descriptor)
    raise _lock_held_error(folder, None)


def _write_holder(descriptor: int) -> None:
    os.ftruncate(descriptor, 0)
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.write(descriptor, f"{os.getpid()} {socket.gethostname()}\n".encode())


def _release_lock(folder: Path, descriptor: int) -> None:
    # Closing the descriptor releases the lock. A file that cannot be removed does no harm: the next holder overwrites
    # the file.
    is_in_use = False
    try:
        remove_if_exists(folder / LOCK_NAME)
    except OSError as error:
        is_in_use = getattr(error, "winerror", None) == _IN_USE
    os.close(descriptor)
    with contextlib.suppress(OSError):
        if is_in_use:
            remove_if_exists(folder / LOCK_NAME)
        folder.rmdir()  # succeeds only if the folder is empty, that is, without a recorded run


def _try_lock(descriptor: int) -> bool:
    """Take the lock without waiting; return False if another process holds the lock."""
    try:
        _take_lock(descriptor)
    except OSError as error:
        if error.errno in _HELD:
            return False
        if error.errno in _UNSUPPORTED:  # on a network file system without locks, check the process that the file names
            return not _seems_alive(_read_holder(descriptor))
        raise
    return True


def _take_lock(descriptor: int) -> None:
    """Take the lock without waiting.

    Raises:
        OSError: another process holds the lock, or the file system has no locks.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        from msvcrt import LK_NBLCK, locking  # type: ignore[attr-defined]

        os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
        locking(descriptor, LK_NBLCK, 1)
    else:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _read_holder(descriptor: int) -> tuple[int, str] | None:
    os.lseek(descriptor, 0, os.SEEK_SET)
    number, _, machine = os.read(descriptor, 300).decode(errors="replace").strip().partition(" ")
    return (int(number), machine) if number.isdecimal() else None


def _seems_alive(holder: tuple[int, str] | None) -> bool:
    if holder is None:
        return False
    import psutil  # imported here, because most runs do not need it

    process, machine = holder
    # A process on another machine cannot be checked, so assume that the process is alive.
    return machine != socket.gethostname() or psutil.pid_exists(process)


def _is_same_file(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False

"""Write files so that a file on disk has either all its old bytes or all its new bytes, even after a crash."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from pathlib import Path

#: Error numbers that file systems return if they cannot flush a folder to disk. The program ignores these errors.
_CANNOT_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.EBADF}


def write_new_file(path: Path, content: bytes, *, attributes_from: Path | None = None, mode: int | None = None) -> None:
    """Create the file ``path`` with the bytes ``content``, and wait until the bytes are on disk.

    Args:
        path: path of the new file, which must not exist.
        content: all bytes of the file.
        attributes_from: path of an existing file. The new file gets the owner, group, mode and extended attributes of
            this file, as far as this user may set these attributes. If None, the operating system chooses the
            attributes.
        mode: permission bits of the new file; None for the bits of ``attributes_from``. If ``attributes_from`` is also
            None, the bits are ``0o666`` minus the umask.

    Raises:
        FileExistsError: the path exists, or is a dangling link.
        OSError: the file cannot be written; the incomplete file is removed.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    # The content may be private. Create the file without permissions for other users, because its final mode is set
    # only later.
    private = attributes_from is not None or mode is not None
    descriptor = os.open(path, flags, 0o600 if private else 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            if attributes_from is not None:
                _copy_attributes(attributes_from, path)
            if mode is not None:
                path.chmod(mode)
            os.fsync(file.fileno())
    except BaseException:
        remove_if_exists(path)
        raise


def replace_file(path: Path, content: bytes, temporary: Path) -> None:
    """Replace the bytes of ``path`` atomically, and wait until the new bytes are on disk.

    The function first writes the bytes to ``temporary``, a path in the same folder, and then renames ``temporary`` to
    ``path``. The earlier owner and mode of ``path`` are lost: the file gets the owner and mode of a newly created file.

    Raises:
        OSError: the file cannot be written; ``path`` keeps its earlier bytes.
    """
    remove_if_exists(temporary)
    write_new_file(temporary, content)
    try:
        temporary.replace(path)
    except OSError:
        remove_if_exists(temporary)
        raise
    fsync_folder(path.parent)


def fsync_folder(folder: Path) -> None:
    """Flush ``folder`` to disk, so that a crash does not undo the creation, replacement or removal of its files.

    On Windows, the function does nothing.
    """
    if not hasattr(os, "O_DIRECTORY"):  # Windows cannot open a folder, and its file system journals file names
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC:
            raise
    finally:
        os.close(descriptor)


def read_file(path: Path) -> bytes:
    """Return the bytes of a regular file.

    If ``path`` is a pipe, a socket or a device, the function raises an error and does not wait for data.

    Raises:
        OSError: the file cannot be read, or is not a regular file.
    """
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "the path is not a regular file", os.fspath(path))
        return file.read()


def remove_if_exists(path: Path) -> bool:
    """Remove a file if it exists, and return whether the file existed."""
    try:
        path.unlink()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _copy_attributes(source: Path, target: Path) -> None:
    found = source.stat()
    if hasattr(os, "chown"):
        made = target.stat()
        # Only root can change the owner. If another user runs the program, the new file belongs to this user, and gets
        # the group of `source` only if the user is a member of the group.
        if made.st_uid != found.st_uid:
            with contextlib.suppress(PermissionError):
                os.chown(target, found.st_uid, -1)
        if made.st_gid != found.st_gid:
            with contextlib.suppress(PermissionError):
                os.chown(target, -1, found.st_gid)
    shutil.copystat(source, target)
    # Do not copy the modification time, because Python reuses compiled bytecode if time and size of the source are
    # unchanged.
    os.utime(target)

"""Write files all or nothing, and check the paths that users pass."""

import errno
import os
import re
import stat
import sys
import zlib
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, BinaryIO

if sys.platform != "win32":
    import fcntl

Path = str | os.PathLike[str]
Content = Iterable[Any]  # it yields bytes and NumPy arrays

ENDING = ".minigrad-save"  # the names of temporary files end so
ACCESS_LIST = "system.posix_acl_access"
LONG = 100  # bytes; a longer name would leave no space for what the name of a temporary file adds to it


def check_path(op: str, path: Path) -> str:
    """Return the path as a str; a number, which open() would treat as an open file and then close, is refused."""
    try:
        checked = os.fsdecode(path)
        valid = b"\0" not in os.fsencode(checked)
    except TypeError:
        raise TypeError(f"[{op}] expected a path, got {path!r}") from None
    except UnicodeEncodeError:
        valid = False
    if not valid:
        raise ValueError(f"[{op}] expected a path that a file can have, got {path!r}")
    return checked


def write(path: str, content: Content) -> None:
    """Create or replace a file, all or nothing; write directly to anything else, such as a device or a pipe.

    An existing file is opened as open() does, but not truncated, so that one without write permission is refused. Links
    are followed, including dangling ones.
    """
    try:
        if os.name == "nt":
            _replace_by_path(os.path.realpath(path), content)
            return
        try:
            old = open(path, "wb", opener=_open_as_it_is)  # noqa: SIM115
        except FileNotFoundError:
            if not os.path.basename(path):
                raise
            _replace(os.path.realpath(path) if os.path.islink(path) else path, content, None)
            return
        with old:
            target = os.path.realpath(path)
            regular = stat.S_ISREG(os.fstat(old.fileno()).st_mode)
            if regular and os.path.exists(target):
                _replace(target, content, old)
            else:
                if regular:  # it has no name, such as a deleted file under /dev/fd
                    old.truncate(0)
                old.writelines(content)
                _sync(old)
    except OSError as error:
        if error.errno is None or error.filename == path:
            raise
        raise OSError(error.errno, error.strerror, path) from error  # the name of the temporary file would not help


def _open_as_it_is(path: str, flags: int) -> int:
    return os.open(path, flags & ~(os.O_CREAT | os.O_TRUNC))


def _open_without_waiting(path: str, flags: int) -> int:
    return _open_as_it_is(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)  # neither links nor pipes are ours


def _open_for_the_owner(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _replace(target: str, content: Content, old: BinaryIO | None) -> None:
    """Write a temporary file next to the target and rename it. `old` is the target if it exists."""
    folder, name = os.path.split(target)
    folder = os.path.realpath(folder, strict=True)  # another thread may change the working directory
    encoded = os.fsencode(name)
    stem = f".{name if len(encoded) <= LONG else f'{zlib.crc32(encoded):08x}'}."
    _remove_leftovers(folder, stem)
    renamed = False
    while not renamed:
        temporary = os.path.join(folder, f"{stem}{os.urandom(4).hex()}{ENDING}")
        try:
            with open(temporary, "xb", opener=_open_for_the_owner if old else None) as file:
                if not _lock(file, temporary):
                    continue
                file.writelines(content)
                if old is not None:
                    _take_over_permissions(old.fileno(), file.fileno())
                _sync(file)
                os.replace(temporary, os.path.join(folder, name))
                renamed = True
        except PermissionError as error:
            reason = f"{error.strerror}: its folder has to be writable, as a new file takes its place"
            raise PermissionError(error.errno, reason, target) from error
        finally:
            if not renamed:
                with suppress(OSError):
                    os.unlink(temporary)
    with suppress(OSError):  # folders without read permission, file systems without support
        _sync_folder(folder)


def _replace_by_path(target: str, content: Content) -> None:
    """Do the same on Windows, where an open file cannot be replaced: what a killed save leaves is not removed."""
    temporary = f"{target}.{os.urandom(4).hex()}{ENDING}"
    try:
        with open(temporary, "xb") as file:
            file.writelines(content)
            _sync(file)
        os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def _lock(file: BinaryIO, path: str) -> bool:
    """Lock a temporary file until it is closed; False if another save has already removed it as a leftover."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks, where no leftovers are removed
        pass
    return os.path.exists(path)


def _remove_leftovers(folder: str, stem: str) -> None:
    """Remove the temporary files of killed saves: those that are not locked."""
    pattern = re.compile(re.escape(stem) + "[0-9a-f]{8}" + re.escape(ENDING))
    with suppress(OSError):
        for name in filter(pattern.fullmatch, os.listdir(folder)):
            path = os.path.join(folder, name)
            with suppress(OSError), open(path, "wb", opener=_open_without_waiting) as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(path)


def _take_over_permissions(old: int, new: int) -> None:
    """Give a file the mode, owner, group and access list of another one, as far as the system permits.

    If the group or the list cannot be kept, the old group's permissions would go to another group, so the group's
    permissions are limited to those of all other users.
    """
    status = os.fstat(old)
    mode = stat.S_IMODE(status.st_mode)
    try:
        os.fchown(new, -1, status.st_gid)
        _copy_access_list(old, new)
    except OSError:
        mode &= ~0o070 | (mode & 0o007) << 3
    try:
        os.fchown(new, status.st_uid, -1)
    except OSError:  # only root may change the owner
        mode &= 0o777
    with suppress(PermissionError):  # some file systems have no modes
        os.fchmod(new, mode)


def _copy_access_list(old: int, new: int) -> None:
    if not hasattr(os, "getxattr"):  # only on Linux can Python read it
        return
    try:
        entries = os.getxattr(old, ACCESS_LIST)
    except OSError:
        with suppress(OSError):
            os.removexattr(new, ACCESS_LIST)  # the folder's default
    else:
        os.setxattr(new, ACCESS_LIST, entries)


def _sync(file: BinaryIO) -> None:
    file.flush()
    try:
        os.fsync(file.fileno())
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # pipes and terminals
            raise


def _sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

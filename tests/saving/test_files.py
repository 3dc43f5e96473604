"""Files are replaced all or nothing and keep their permissions; devices, pipes and links are never replaced."""

import errno
import os
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import threading
import tty
from contextlib import suppress
from pathlib import Path

import pytest
from checks import raises

import minigrad as mg
from minigrad.tools.files import ENDING, write

CHILD = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join([str(Path(mg.__file__).parent.parent), os.environ.get("PYTHONPATH", "")]),
}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


@pytest.fixture
def umask():
    """Sets the umask for the test."""
    old = os.umask(0o022)
    yield os.umask
    os.umask(old)


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


def child(code, *arguments, **options):
    """Run the code in a fresh interpreter; a line UNPRIVILEGED makes a root process give up its rights."""
    forbidden = "import os\nif os.geteuid() == 0:\n    os.setgroups([]), os.setgid(65534), os.setuid(65534)\n"
    code = "import sys, minigrad as mg\n" + code.replace("UNPRIVILEGED\n", forbidden)
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=CHILD, **options)


def output(code, *arguments, **options):
    with child(code, *arguments, **options) as process:
        text, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return text


# ── devices and pipes ──


def test_a_pipe_stays_a_pipe(path):
    os.mkfifo(path)
    read = []
    reader = threading.Thread(target=lambda: read.append(path.read_bytes()), daemon=True)
    reader.start()
    mg.save({"x": mg.arange(3)}, path)
    reader.join(30)
    assert stat.S_ISFIFO(os.stat(path).st_mode)
    assert os.listdir(path.parent) == [path.name]
    path.unlink()
    path.write_bytes(read[0])
    assert mg.load(path)["x"].tolist() == [0, 1, 2]


def test_a_device_stays_a_device(tmp_path):
    """With a terminal, which every user may open: with /dev/null, a failure would remove it."""
    master, slave = os.openpty()
    tty.setraw(slave)
    (tmp_path / "link").symlink_to(os.ttyname(slave))
    mg.save({"x": mg.arange(3)}, tmp_path / "link")
    (tmp_path / "received").write_bytes(os.read(master, 4096))
    assert mg.load(tmp_path / "received")["x"].tolist() == [0, 1, 2]
    assert stat.S_ISCHR(os.stat(tmp_path / "link").st_mode)
    os.close(master), os.close(slave)


def test_sockets_are_refused(path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        with pytest.raises(OSError, match=r"model\.safetensors") as caught:
            mg.save({"x": mg.ones(1)}, path)
        assert caught.value.errno == errno.ENXIO
        assert stat.S_ISSOCK(os.stat(path).st_mode)


def test_standard_output():
    code = "mg.save({'x': mg.arange(3)}, '/dev/stdout')"
    whole = subprocess.run(
        [sys.executable, "-c", "import minigrad as mg\n" + code], env=CHILD, check=True, capture_output=True
    )
    assert whole.stdout.endswith(struct.pack("<3q", 0, 1, 2))


def test_a_file_that_has_no_name(tmp_path):
    with tempfile.TemporaryFile(dir=tmp_path) as file:
        file.write(b"old" * 1000)
        file.flush()
        mg.save({"x": mg.arange(3)}, f"/dev/fd/{file.fileno()}")
        file.seek(0)
        assert file.read().endswith(struct.pack("<3q", 0, 1, 2))
    assert os.listdir(tmp_path) == []


# ── permissions ──


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_a_new_file_has_the_mode_of_any_other(path, umask, mask):
    umask(mask)
    mg.save({"x": mg.ones(1)}, path)
    assert mode(path) == 0o666 & ~mask


@pytest.mark.parametrize("kept", [0o600, 0o640, 0o666, 0o755, 0o4700])
def test_a_file_keeps_its_mode(path, umask, kept):
    path.touch()
    path.chmod(kept)
    mg.save_checkpoint(path, epoch=1)
    assert mode(path) == kept
    assert mg.load_checkpoint(path) == {"epoch": 1}


def test_a_temporary_file_is_never_more_readable_than_the_final_one(path, umask, monkeypatch):
    umask(0)
    path.touch()
    path.chmod(0o600)
    seen = []

    def watched(function):
        def call(*arguments, **options):
            result = function(*arguments, **options)
            seen.extend(mode(entry) for entry in os.scandir(path.parent))
            return result

        return call

    for name in ("open", "fsync", "fchmod", "fchown", "replace"):
        monkeypatch.setattr(os, name, watched(getattr(os, name)))
    write(str(path), (b"%d" % len(os.listdir(path.parent)) for _ in range(2)))
    assert path.read_bytes() == b"22"  # both counted the temporary file
    assert len(seen) >= 8
    assert set(seen) == {0o600}


def test_the_owner_is_kept_where_that_is_permitted(path, monkeypatch):
    path.touch()
    asked = []
    monkeypatch.setattr(os, "fchown", lambda file, user, group: asked.append((user, group)))
    mg.save({"x": mg.ones(1)}, path)
    assert sorted(asked) == sorted([(-1, path.stat().st_gid), (path.stat().st_uid, -1)])
    monkeypatch.undo()
    if os.geteuid() == 0:
        os.chown(path, 12345, 23456)
        path.chmod(0o6750)
        mg.save({"x": mg.ones(1)}, path)
        assert (path.stat().st_uid, path.stat().st_gid, mode(path)) == (12345, 23456, 0o6750)


@pytest.mark.parametrize(
    "before, after", [(0o660, 0o600), (0o664, 0o644), (0o640, 0o600), (0o6775, 0o755), (0o600, 0o600)]
)
def test_another_group_gets_what_everybody_gets(path, monkeypatch, before, after):
    path.touch()
    path.chmod(before)

    def fail(*_):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "fchown", fail)
    mg.save({"x": mg.ones(1)}, path)
    assert mode(path) == after


def access_list(*entries):
    """A POSIX access list as Linux stores it: (tag, permissions, id)."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


@pytest.mark.skipif(not hasattr(os, "setxattr"), reason="access lists of Linux")
def test_access_lists(path):
    """The group bits of st_mode are the list's mask; without the list they would be the group's permissions."""
    name, nobody = "system.posix_acl_access", 2**32 - 1
    with_user = access_list((1, 6, nobody), (2, 4, 12345), (4, 0, nobody), (16, 4, nobody), (32, 0, nobody))
    path.touch()
    try:
        os.setxattr(path, name, with_user)
    except OSError as error:
        pytest.skip(f"no access lists here: {error}")
    mg.save({"x": mg.ones(1)}, path)
    assert os.getxattr(path, name) == with_user
    os.removexattr(path, name)
    path.chmod(0o640)
    os.setxattr(path.parent, "system.posix_acl_default", with_user)
    mg.save({"x": mg.ones(1)}, path)
    assert mode(path) == 0o640
    raises(OSError, "No data available", os.getxattr, path, name)


REFUSED = """
UNPRIVILEGED
try:
    mg.save({"x": mg.zeros(1)}, sys.argv[1])
except PermissionError as error:
    print(error)
"""


def test_a_file_that_may_not_be_written():
    """Even if its folder is writable: a file is write-protected to be kept."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        path = os.path.join(folder, "model")
        mg.save({"x": mg.ones(1)}, path)
        os.chmod(path, 0o444)
        assert output(REFUSED, path) == f"[Errno 13] Permission denied: '{path}'\n"
        assert mg.load(path)["x"].tolist() == [1.0]
        assert os.listdir(folder) == ["model"]


def test_a_folder_that_may_not_be_written():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model")
        mg.save({"x": mg.ones(1)}, path)
        os.chmod(path, 0o666)
        os.chmod(folder, 0o555)
        message = output(REFUSED, path)
        os.chmod(folder, 0o755)
        assert message.startswith("[Errno 13] Permission denied: its folder has to be writable")
        assert message.endswith(f"'{path}'\n")
        assert mg.load(path)["x"].tolist() == [1.0]


# ── links ──


def test_links_are_followed(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "second").symlink_to("folder/real")
    (tmp_path / "first").symlink_to("second")
    for value in (1.0, 2.0):  # the link dangles, then it does not
        mg.save({"x": mg.ones(1) * value}, tmp_path / "first")
        assert mg.load(tmp_path / "folder" / "real")["x"].item() == value
    assert sorted(os.listdir(tmp_path)) == ["first", "folder", "second"]
    assert (tmp_path / "first").is_symlink()
    assert (tmp_path / "second").is_symlink()


def test_links_to_nowhere(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "nowhere").symlink_to("absent/model")
    (tmp_path / "folder").symlink_to(".")
    for name, number in (("loop", errno.ELOOP), ("nowhere", errno.ENOENT), ("folder", errno.EISDIR)):
        with pytest.raises(OSError, match=name) as caught:
            mg.save({"x": mg.ones(1)}, tmp_path / name)
        assert (caught.value.errno, caught.value.filename) == (number, str(tmp_path / name))
        assert (tmp_path / name).is_symlink()


# ── names ──


@pytest.mark.parametrize("name", ["m" * 255, "ж" * 127, "m" * 101, "\udcff", "a\nb", "[a]*?.{3}"])
def test_names(tmp_path, name):
    for value in (1.0, 2.0):
        mg.save({"x": mg.ones(1) * value}, tmp_path / name)
    assert mg.load(tmp_path / name)["x"].item() == 2.0
    assert os.listdir(tmp_path) == [name]


@pytest.mark.parametrize("name, error", [
    ("", FileNotFoundError), ("absent/", FileNotFoundError), ("absent/../x", FileNotFoundError), ("file/x", NotADirectoryError),
    ("file/", NotADirectoryError), (".", IsADirectoryError), ("m" * 256, OSError), ("a\0b", ValueError), ("\ud800", ValueError), (b"a\0b", ValueError),
    (3.5, TypeError), (None, TypeError), (True, TypeError), (["x"], TypeError),
])  # fmt: skip
def test_names_that_no_file_can_have(tmp_path, monkeypatch, name, error):
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    for op, call in (
        ("save", lambda: mg.save({}, name)),
        ("save", lambda: mg.save_checkpoint(name)),
        ("load", lambda: mg.load(name)),
    ):
        match = rf"^\[{op}\] expected a path" if error in (TypeError, ValueError) else None
        raises(error, match, call)
    assert os.listdir(tmp_path) == ["file"]


# ── temporary files ──

KILLED = """
import os, signal
def content():
    yield b"half"
    os.kill(os.getpid(), signal.SIGKILL)
from minigrad.tools.files import write
write(sys.argv[1], content())
"""


@pytest.mark.parametrize("name", ["model.safetensors", "m" * 255])
def test_what_a_killed_save_leaves_is_removed(tmp_path, name):
    with child(KILLED, tmp_path / name) as process:
        process.wait(60)
    assert process.returncode == -signal.SIGKILL
    (left,) = os.listdir(tmp_path)
    assert left.endswith(ENDING)
    others = {".model.safetensors.20261124", f".model.{'0' * 8}{ENDING}", f".model.safetensors.{'z' * 8}{ENDING}"}
    for other in others:
        (tmp_path / other).touch()
    mg.save({"x": mg.ones(1)}, tmp_path / name)
    assert set(os.listdir(tmp_path)) == {name, *others}


def test_pipes_and_links_that_are_called_like_a_left_over_file(path):
    """Nothing with the name of a temporary file may block a save or redirect it."""
    os.mkfifo(path.parent / f".{path.name}.{'0' * 8}{ENDING}")
    (path.parent / f".{path.name}.{'1' * 8}{ENDING}").symlink_to(path)
    code = "mg.save({'x': mg.ones(1)}, sys.argv[1])\nmg.save({'x': mg.ones(1)}, sys.argv[1])"
    output(code, path)
    assert mg.load(path)["x"].tolist() == [1.0]


SLOW = """
from minigrad.tools.files import write
def content():
    yield b"slow"
    print("half", flush=True)
    sys.stdin.readline()
write(sys.argv[1], content())
print("done", flush=True)
"""


def test_a_save_in_another_process_goes_on(path):
    with child(SLOW, path) as process:
        assert process.stdout.readline() == "half\n"
        mg.save({"x": mg.ones(1)}, path)
        assert mg.load(path)["x"].tolist() == [1.0]
        assert len(os.listdir(path.parent)) == 2
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "done\n"
    assert path.read_bytes() == b"slow"
    assert os.listdir(path.parent) == [path.name]


def test_many_saves_at_once_leave_one_complete(path):
    errors = []

    def run(value):
        try:
            for _ in range(20):
                mg.save({"x": mg.ones(1000) * value}, path)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(value,)) for value in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        with suppress(FileNotFoundError):
            assert len(set(mg.load(path)["x"].tolist())) == 1
    assert errors == []
    assert os.listdir(path.parent) == [path.name]


def test_a_file_system_without_locks(path, monkeypatch):
    import fcntl

    left = path.parent / f".{path.name}.{'0' * 8}{ENDING}"
    left.touch()

    def fail(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", fail)
    mg.save({"x": mg.ones(1)}, path)
    assert set(os.listdir(path.parent)) == {path.name, left.name}  # it may belong to a save in progress


FULL = """
import resource, os
mg.save({"x": mg.ones(3)}, sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    mg.save({"x": mg.ones(100_000)}, sys.argv[1])
except OSError as error:
    print(error)
print(os.listdir(os.path.dirname(sys.argv[1])), mg.load(sys.argv[1])["x"].tolist())
"""


def test_no_space_left(path):
    assert output(FULL, path) == f"[Errno 27] File too large: '{path}'\n['{path.name}'] [1.0, 1.0, 1.0]\n"

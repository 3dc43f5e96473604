"""Facts stated in several places of the source tree: installation, version, Python versions, linters."""

import re
import tomllib
from pathlib import Path

import pytest

import minigrad as mg

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(not (ROOT / "pyproject.toml").exists(), reason="no source tree beside these tests")

FROM_THE_INDEX = re.compile(r"\bpip3? install\b[^#]*?[\s'\"`]minigrad\b(?![/.])|(?<!/)\bminigrad\[[a-z]")


def text(path):
    return (ROOT / path).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def project():
    return tomllib.loads(text("pyproject.toml"))


@pytest.fixture(scope="module")
def pythons(project):
    """Return the supported versions of Python, oldest first."""
    classifiers = project["project"]["classifiers"]
    return [found[1] for found in (re.fullmatch(r".*:: Python :: (3\.\d+)", line) for line in classifiers) if found]


@pytest.mark.parametrize("end", ["", "[cuda12x]", "==0.1.0"])
@pytest.mark.parametrize("command", ["pip install {}", "pip install -U '{}'", "python -m pip install numpy {}"])
def test_commands_that_name_the_index_are_recognized(command, end):
    assert FROM_THE_INDEX.search(command.format("minigrad" + end))
    assert not FROM_THE_INDEX.search(command.format("./minigrad" + end))


def test_no_file_says_to_install_minigrad_from_the_index():
    """On PyPI the name belongs to another package. A checkout is installed by its path."""
    folders = "minigrad cext tests docs examples benchmarks .ci .github".split()
    files = [*ROOT.glob("*"), *(path for folder in folders for path in (ROOT / folder).rglob("*"))]
    files = [path for path in files if path.is_file() and path.suffix not in {".so", ".pyc", ".png"}]
    files = [path for path in files if "_build" not in path.parts]
    assert len(files) > 300
    lines = [(path, line) for path in files for line in path.read_text("utf-8", "replace").splitlines()]
    assert not [f"{path.relative_to(ROOT)}: {line}" for path, line in lines if FROM_THE_INDEX.search(line)]


def test_citation_and_changelog_have_the_version():
    assert re.search(r"^version: (\S+)$", text("CITATION.cff"), re.MULTILINE)[1] == mg.__version__
    assert re.search(r"^## (\d\S*)", text("CHANGELOG.md"), re.MULTILINE)[1] == mg.__version__


def test_versions_of_python_agree(project, pythons):
    oldest, tool = pythons[0], project["tool"]
    digits = [version.replace(".", "") for version in pythons]
    assert pythons == [f"3.{minor}" for minor in range(int(digits[0][1:]), int(digits[-1][1:]) + 1)]
    assert project["project"]["requires-python"] == f">={oldest}"
    assert tool["cibuildwheel"]["build"].split() == [f"cp{version}-*" for version in digits]
    assert tool["ruff"]["target-version"] == f"py{digits[0]}"
    assert tool["mypy"]["python_version"] == oldest
    assert f"version_info < ({oldest.replace('.', ', ')})" in text("Makefile")
    for path in ("Makefile", "README.md", "docs/start/install.md"):
        assert set(re.findall(r"Python (3\.\d+) or newer", text(path))) == {oldest}, path
    assert f'python: ["{oldest}", "{pythons[-1]}"]' in text(".github/workflows/ci.yml")


def test_free_threading_is_not_declared(project):
    """The engine relies on the GIL, which a free-threaded Python has to enable."""
    assert not [line for line in project["project"]["classifiers"] if "Free Threading" in line]
    for path in [ROOT / "setup.py", *(ROOT / "cext").rglob("*.p[yx][xdi]")]:
        assert not re.search(r"freethreading_compatible\W*[=:]\s*True", path.read_text(encoding="utf-8")), path


def test_pre_commit_has_the_linters_of_the_extra(project):
    """The pre-commit hooks run the same tools as `make lint`, in the same versions."""
    hooks = dict(re.findall(r"repo: \S+/(\S+)\n +rev: v(\S+)", text(".pre-commit-config.yaml")))
    lint = dict(line.split("==") for line in project["project"]["optional-dependencies"]["lint"])
    packages = {"ruff-pre-commit": "ruff", "cython-lint": "cython-lint", "mirrors-clang-format": "clang-format"}
    assert hooks == {repository: lint[package] for repository, package in packages.items()}


def test_no_extra_installs_the_empty_releases_of_mpich(project):
    """On systems for which MPICH has no wheel, pip would choose version 0.0.0, which holds nothing."""
    extras = project["project"]["optional-dependencies"].values()
    lines = [line for extra in extras for line in extra if line.startswith("mpich")]
    assert set(lines) == {"mpich>=5"}


def test_the_tests_of_musl_wheels_import_what_is_installed_for_them(project):
    override = next(o for o in project["tool"]["cibuildwheel"]["overrides"] if o["select"] == "*-musllinux*")
    assert not override["test-extras"]
    folders = override["test-command"].partition(" auto ")[2].split()
    files = [path for folder in folders for path in (ROOT / "tests" / folder).rglob("*.py")]
    assert len(files) > 50
    absent = re.compile(r"^ *(?:import|from) (?:sklearn|matplotlib|mpi4py|scipy|tqdm)\b", re.MULTILINE)
    assert not [path for path in files if absent.search(path.read_text(encoding="utf-8"))]


def test_uv_notices_every_kind_of_file_that_is_built_or_installed(project):
    """It compares these files alone before it keeps what it has built of a path."""
    keys = [key["file"] for key in project["tool"]["uv"]["cache-keys"]]
    known = {path for key in keys for path in ROOT.glob(key)}
    patterns = project["tool"]["setuptools"]["package-data"]["*"]
    packaged = {path for pattern in ("*.py", *patterns) for path in (ROOT / "minigrad").rglob(pattern)}
    sources = {
        path for path in (ROOT / "cext").rglob("*.*") if path.suffix in {".pyx", ".pxd", ".pxi", ".cpp", ".hpp", ".inc"}
    }
    assert len(sources) > 50
    assert not {ROOT / "setup.py", *packaged, *sources} - known


def test_uv_locks_extras_apart_that_exclude_each_other(project):
    """CUDA 12 excludes CUDA 13, which the release of PyTorch in `peers` is built for."""
    conflicts = [{entry["extra"] for entry in group} for group in project["tool"]["uv"]["conflicts"]]
    assert {"cuda12x", "cuda13x"} in conflicts
    assert {"cuda12x", "peers"} in conflicts

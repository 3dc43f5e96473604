"""Build the compiled part: cext/<folder>/<name>.pyx becomes minigrad.engine.<folder>.<name>.

This file does what setuptools does not do by itself:

- the kernels are compiled once per instruction set, each time with its own flags; which one runs is
  decided at run time (cext/kernels/dispatch.cpp); a build in place, or with checks, leaves out those that this
  machine cannot run;
- all objects of all modules compile in parallel, and only those whose source, headers or command changed;
- declarations that follow from others are written (cext/declare.py), and every module gets a type stub (cext/stubs.py);
- on Windows, Clang is called by its usual options, as the kernels need its vectors, which MSVC lacks;
- MINIGRAD_DEBUG=1 builds with bounds checks, MINIGRAD_SANITIZE=1 also with AddressSanitizer and UBSan,
  MINIGRAD_SANITIZE=thread with ThreadSanitizer instead of these.
"""

import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

SOURCE = Path("cext")
X86 = platform.machine().lower() in ("x86_64", "amd64")
MAC, WINDOWS = sys.platform == "darwin", sys.platform == "win32"
SANITIZE = {"": "", "0": "", "1": "address,undefined", "thread": "thread"}[os.environ.get("MINIGRAD_SANITIZE", "")]
TSAN = SANITIZE == "thread"
DEBUG = bool(SANITIZE) or os.environ.get("MINIGRAD_DEBUG", "0") not in ("", "0")
MODE = "tsan" if TSAN else "sanitize" if SANITIZE else "debug" if DEBUG else "release"
BUILD = Path("build") / MODE

ISAS = {"baseline": []}
if X86 and not TSAN:  # ThreadSanitizer sees plain loads and stores, not the masked ones of AVX-512
    ISAS["baseline"] = ["-O2"]  # for processors older than AVX2: compiled in two thirds of the time that -O3 takes
    ISAS["avx2"] = "-mavx2 -mfma -mbmi2".split()
    ISAS["avx512"] = "-mavx512f -mavx512dq -mavx512bw -mavx512vl -mavx2 -mfma -mbmi2 -mprefer-vector-width=512".split()

STAGE = Path("build") / "cython"  # for Cython, second names of the sources, and what cext/declare.py writes
COMMON = ["-std=c++20", "-fvisibility=hidden", f"-I{SOURCE}", f"-I{STAGE}"]
# Errno and traps keep a compiler from vectorizing; NaN, infinities and signed zeros are kept.
KERNEL = "-fno-math-errno -fno-trapping-math -fopenmp-simd -Wall -Wextra".split()
# A product and a sum are fused in a vectorized loop and in its remainder alike. Clang decides so for each expression
# with "on"; with "fast" it depends on the surrounding code. For GCC, "on" means "off" before version 14.
FUSED = {"gcc": "-ffp-contract=fast", "clang": "-ffp-contract=on"}
# A short loop that straddles two cache lines takes 1.7 times as long, so alignment must not depend on what else is
# linked. A Cython module runs 1.4 % more instructions at -O1 than at -O2, and compiles in two thirds of the time.
OPTIMIZE = {
    "kernel": ["-O3", "-g0", "-falign-loops=32"],
    "shared": ["-O2", "-g0"],
    "cython": ["-O1", "-g0"],
    "small": ["-Os", "-g0"],
}
# Calls of Python's functions go through no stubs for late binding: an import resolves all names of a module at once.
# Cython defines a function in a module that then calls the one of the shared module.
GENERATED = ["-Wno-unused-function", *([] if MAC or WINDOWS else ["-fno-plt"])]
# Modules whose own speed counts. The others are called seldom or start long kernels, and become a third smaller.
FAST = set(
    "devices.cpu memory.array memory.calls memory.pool ops.activation ops.arguments ops.arithmetic ops.index "
    "ops.layout ops.matmul ops.norm ops.optimizer tape.backward tape.node tape.record tensor.tensor".split()
)
LINK = []
if WINDOWS:  # Python's own C library, and WaitOnAddress for the thread pool
    COMMON += "-D_DLL -D_MT -D_CRT_SECURE_NO_WARNINGS -Xclang --dependent-lib=msvcrt".split()
    LINK += "-fuse-ld=lld -Wl,-noimplib -nostartfiles -nostdlib -lkernel32 -lsynchronization".split()
elif not MAC:
    COMMON += ["-pthread"]
    LINK += ["-pthread", "-ldl"]
if DEBUG:
    # at -O1, GCC mistakes a vector that is filled lane by lane for an uninitialized one
    checks = ["-O1", "-g", "-D_GLIBCXX_ASSERTIONS", "-Wno-maybe-uninitialized"]
    OPTIMIZE = dict.fromkeys(OPTIMIZE, checks)
elif not WINDOWS:
    # a sixth of the size is names of functions, and parts of a file on pages of their own are 4 KB for each module
    LINK += ["-Wl,-x"] if MAC else ["-Wl,-s", "-Wl,-z,noseparate-code"]
if SANITIZE:
    COMMON += [f"-fsanitize={SANITIZE}", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer"]
    LINK += [f"-fsanitize={SANITIZE}"]

# freethreading_compatible stays off, so that a free-threaded Python turns the GIL on: reference counts of buffers and
# lists of free memory rely on it (cext/runtime/buffer.hpp).
DIRECTIVES = {
    "language_level": 3,
    "annotation_typing": False,  # annotations are for the stubs (cext/stubs.py)
    "binding": True,
    "embedsignature": False,
    "auto_pickle": False,  # classes that can be copied say how
    "embedsignature.format": "clinic",
    "cdivision": True,
    "boundscheck": True,  # for tuples and lists, whose lengths callers choose: pointers are never checked
    "wraparound": True,
    "nonecheck": DEBUG,
    "allow_none_for_extension_args": False,  # Python code must pass a value of the declared type
    "initializedcheck": DEBUG,
}

# Cython's own functions, such as those that parse arguments; every module would contain them, a third of most. At -O1,
# a training step of a tiny network takes 1.2 % more instructions.
SHARED = "minigrad.engine.cython_shared"

# The C++ files of a module; each belongs to exactly one.
BUFFER = SOURCE / "runtime" / "buffer.cpp"
DISPATCH = SOURCE / "kernels" / "dispatch.cpp"
CPP_FILES = {
    "memory.pool": [BUFFER],
    "devices.cpu": sorted({*SOURCE.glob("runtime/*.cpp"), *SOURCE.glob("kernels/*.cpp")} - {BUFFER}),
}


def extensions():
    """The one that Cython makes for all, and one extension per .pyx file, named by its place in cext/."""
    found = [Extension(SHARED, [])]
    for pyx in sorted(SOURCE.glob("*/*.pyx")):
        name = ".".join(pyx.relative_to(SOURCE).with_suffix("").parts)
        sources = [pyx, *(path for path in CPP_FILES.get(name, []) if path.exists())]
        found.append(Extension(f"minigrad.engine.{name}", [str(path) for path in sources], language="c++"))
    return found


def stub_beside(module):
    """The type stub of a compiled module."""
    return Path(module).with_name(Path(module).name.partition(".")[0] + ".pyi")


class BuildEngine(build_ext):
    """Cython, then all objects in parallel, then the links."""

    def run(self):
        self.stays_here = DEBUG or self.inplace or self.editable_mode  # setuptools forgets this while it builds
        sys.path.insert(0, str(SOURCE))
        super().run()
        self.write_stubs()

    def build_extensions(self):
        if MAC:  # a universal Python would ask for two architectures at once, whose kernels differ
            os.environ.setdefault("ARCHFLAGS", f"-arch {platform.machine()}")
        if WINDOWS:
            self.compiler.compiler_so_cxx = clang = shlex.split(os.environ.get("CXX", "clang++"))
            self.compiler.linker_so_cxx = [*clang, "-shared", *(f"-L{path}" for path in self.compiler.library_dirs)]
        # The environments of uv's builds have new names each time, and no headers: a command would always be new.
        python = [f"-I{path}" for path in self.compiler.include_dirs if os.path.isdir(path)]
        compiler = "clang" if "__clang__" in self.try_compiler(python) else "gcc"
        if WINDOWS:  # Clang's own library tells the processor's instruction sets
            names = [*clang, "-rtlib=compiler-rt", "-print-libgcc-file-name"]
            self.compiler.linker_so_cxx += [subprocess.check_output(names, text=True).strip()]
        self.objects = BUILD / f"objects-{compiler}-{sys.implementation.cache_tag}"
        kernel = [*KERNEL, FUSED[compiler]]
        isas = self.runnable(ISAS) if self.stays_here else ISAS
        compiles, links = [], []
        for extension, generated in zip(self.extensions, self.cythonized(), strict=True):
            name = extension.name.removeprefix("minigrad.engine.")
            kind = "shared" if extension.name == SHARED else "cython" if name in FAST else "small"
            flags = [*COMMON, *OPTIMIZE[kind], *GENERATED, *python]
            jobs = [self.compilation(generated, "module", flags)]
            for source in map(Path, extension.sources[1:]):
                variants = isas if source.parent.name == "kernels" else {"baseline": []}
                if source == DISPATCH:
                    variants = {"baseline": [f"-DMG_HAS_{isa.upper()}" for isa in isas]}
                for isa, switches in variants.items():
                    flags = [*COMMON, *OPTIMIZE["kernel"], *kernel, *switches, f"-DMG_ISA={isa}"]
                    jobs.append(self.compilation(source, isa, flags))
            compiles += jobs
            target = Path(self.get_ext_fullpath(extension.name))
            command = [*self.compiler.linker_so_cxx, *(str(target) for target, _ in jobs), *LINK, "-o", str(target)]
            links.append((target, command, name))
        # setuptools' own -j counts modules; here it counts objects
        with ThreadPoolExecutor(self.parallel if isinstance(self.parallel, int) else os.cpu_count()) as pool:
            for jobs, what in ((compiles, "files compiled"), (links, "modules linked")):
                for count, _ in enumerate(pool.map(lambda job: self.make(*job), jobs), 1):
                    if sys.stderr.isatty():
                        end = "\n" if count == len(jobs) else "\r"
                        print(f"{count} of {len(jobs)} {what}", end=end, file=sys.stderr, flush=True)

    def try_compiler(self, python):
        """Return the compiler's macros; without headers of Python and C++20, stop and name the packages to install."""
        command = [*self.compiler.compiler_so_cxx, "-std=c++20", *python, "-dM", "-E", "-x", "c++", "-"]
        try:
            done = subprocess.run(
                command, input="#include <Python.h>\n#include <version>\n", capture_output=True, text=True
            )
            fault = done.stderr.strip() if done.returncode else ""
        except OSError as error:
            fault = str(error)
        if fault:
            raise SystemExit(
                f"minigrad needs a C++20 compiler and Python's headers, but {command[0]} failed: {fault}\n"
                "Install them (Debian, Ubuntu: apt install g++ python3-dev; Fedora: dnf install gcc-c++ python3-devel; "
                "macOS: xcode-select --install; Windows: LLVM and Visual Studio's Build Tools), or set CXX to another "
                "compiler."
            )
        return done.stdout

    def runnable(self, isas):
        """Return those whose flags the compiler sets by itself for this machine's processor; all if that is unknown."""
        command = [*self.compiler.compiler_so_cxx, "-march=native", "-dM", "-E", "-x", "c++", os.devnull]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            return isas
        macros = set(done.stdout.split())
        needed = {isa: {f"__{s[2:].upper()}__" for s in isas[isa] if s[:2] == "-m" and "=" not in s} for isa in isas}
        return {isa: isas[isa] for isa in isas if needed[isa] <= macros}

    def cythonized(self):
        """The .cpp file of every extension, written to build/ if it is out of date."""
        import Cython
        from Cython.Build import cythonize

        # Cython finds `minigrad.engine.memory.array` by its path, so the sources get second names of that form.
        from declare import write

        stage = STAGE / "minigrad" / "engine"
        if stage.is_symlink():  # an older build made a link to cext/ itself
            stage.unlink()
        write(STAGE)
        for path in [*SOURCE.glob("*/*.pyx"), *SOURCE.glob("*/*.pxi")]:
            link = stage / path.relative_to(SOURCE)
            if WINDOWS:  # where only administrators make links
                shutil.copy2(path, link)
            elif not link.is_symlink():
                link.symlink_to(os.path.relpath(path, link.parent))
        staged = [
            Extension(e.name, [str(stage / Path(e.sources[0]).relative_to(SOURCE))], language="c++")
            for e in self.extensions[1:]
        ]
        made_by, record = f"Cython {Cython.__version__} {SHARED} {DIRECTIVES}", BUILD / "cython.command"
        known = record.exists() and record.read_text() == made_by
        done = cythonize(
            [Extension(SHARED, [SHARED.replace(".", "/") + ".cpp"]), *staged],
            build_dir=str(BUILD),
            include_path=[str(STAGE)],
            compiler_directives=DIRECTIVES,
            shared_utility_qualified_name=SHARED,
            shared_utility_features_disabled=["MemoryView"],
            nthreads=0 if self.parallel == 1 else os.cpu_count(),
            force=self.force or not known,
        )
        record.write_text(made_by)
        return [Path(extension.sources[0]) for extension in done]

    def get_output_mapping(self):
        """The stubs too: a strict editable install links only the files that are listed here."""
        mapping = super().get_output_mapping()
        typed = [pair for pair in mapping.items() if SHARED.rpartition(".")[2] not in pair[0]]
        return mapping | {str(stub_beside(built)): str(stub_beside(here)) for built, here in typed}

    def write_stubs(self):
        """Write the type stub of every extension next to it, unless it is newer than its sources."""
        from stubs import PYTORCH, Stub

        for extension in self.extensions[1:]:
            pyx, target = Path(extension.sources[0]), stub_beside(self.get_ext_fullpath(extension.name))
            sources = pyx, pyx.with_suffix(".pxd"), *SOURCE.rglob("*.pxi"), SOURCE / "stubs.py", *PYTORCH
            needed = [path for path in sources if path.exists()]
            made = target.stat().st_mtime_ns if target.exists() and not self.force else 0
            if any(path.stat().st_mtime_ns > made for path in needed):
                target.write_text(str(Stub(extension.name, pyx, [str(STAGE)])), encoding="utf-8")

    def compilation(self, source, variant, flags):
        """(object, command) for one source; the compiler lists the headers it read in a .d file."""
        name = "-".join(source.with_suffix("").parts[-2:])
        target = self.objects / f"{name}.{variant}.o"
        command = [*self.compiler.compiler_so_cxx, *flags, "-MMD", "-c", str(source), "-o", str(target)]
        return target, command

    def make(self, target, command, name=""):
        """Run the command unless the target is newer than its sources and was made by the same command.

        `name` keeps the records of two modules apart whose files have the same name.
        """
        record = self.objects / f"{name or target.name}.command"
        text = shlex.join(command)
        if not self.force and self.fresh(target, command) and record.exists() and record.read_text() == text:
            return
        print(f"{text if self.verbose > 1 else '  ' + target.name}\n", end="", flush=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        record.parent.mkdir(parents=True, exist_ok=True)
        record.unlink(missing_ok=True)
        if subprocess.run(command).returncode:
            raise SystemExit(f"failed: {text}")
        record.write_text(text)

    @staticmethod
    def fresh(target, command):
        if not target.exists():
            return False
        depfile = target.with_suffix(".d")
        if "-c" in command:
            if not depfile.exists():
                return False
            listed = depfile.read_text().replace("\\\n", " ").split(":", 1)[1]
            needed = [path.replace("\\ ", " ") for path in re.split(r"(?<!\\)\s+", listed.strip())]
        else:
            needed = [word for word in command if word.endswith(".o")]
        made = target.stat().st_mtime_ns
        return all(os.path.exists(path) and os.stat(path).st_mtime_ns <= made for path in needed)


if __name__ == "__main__":
    setup(ext_modules=extensions(), cmdclass={"build_ext": BuildEngine})

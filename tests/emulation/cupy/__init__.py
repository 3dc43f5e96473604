"""An emulation on the CPU of the few names of CuPy that minigrad uses: modules are compiled by the C++ compiler after
``emulate.hpp``, and memory is the CPU's.

Every allocation lies between guard bytes that no kernel may write; every launch checks all of them.
"""

import ctypes
import mmap
import os
import re
import struct
import subprocess
import tempfile
import zlib
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from . import cuda, nccl

__version__ = "emulated"
FOLDER = Path(__file__).parent.parent
# Threads per block that have enough registers for any kernel: 255 each of 65,536
UNBOUND = 256
# minigrad keeps what is compiled here apart from the machine code of GPUs.
os.environ.setdefault("MINIGRAD_CACHE_DIR", str(Path(tempfile.gettempdir(), f"minigrad-emulation-{os.getuid()}")))


class ndarray:
    """The class that other libraries ask about; the emulation has no arrays."""


def compile_using_nvrtc(code, options=()):
    """Return a shared library with a C function for each of the kernels in a text, and an empty dict as CuPy does.

    With the option -fsanitize=thread, threads also take turns between accesses to memory: two blocks that add to the same
    element then lose a sum. Kernels take about twice as long.
    """
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder, "module.cpp"), Path(folder, "module.so")
        definitions = [option for option in options if option.startswith("-D")]
        source.write_text(code)
        present = run("-E", "-P", *definitions, source)
        kernels = re.findall(r"__global__ void (?:__launch_bounds__\((\d+)[^)]*\)\s+)?(\w+)\(", present)
        # With internal linkage, templates may have their own variables in the section of shared memory.
        text = f'#include "{FOLDER}/emulate.hpp"\nnamespace {{\n{code}\n}}\n'
        source.write_text(text + "".join(f"EMULATED({name}, {bound or UNBOUND})\n" for bound, name in kernels))
        run(*MODULE, *set(options) & {PREEMPT}, *definitions, "-c", source, "-o", made.with_suffix(".o"))
        # Linked without the sanitizers' libraries, whose functions emulate.hpp defines.
        run("-shared", "-Wl,-z,defs", made.with_suffix(".o"), driver, "-o", made)
        return made.read_bytes(), {}


MODULE = [
    "-std=c++20", "-O1", "-fPIC", "-w", "-fno-math-errno", "-ffp-contract=off",
    # The scheduler knows a barrier by the calls that lead to it, and each barrier of the text is one.
    "-fno-omit-frame-pointer", "-fno-thread-jumps",
    "-fsanitize=alignment", "--param=tsan-instrument-func-entry-exit=0",
]  # fmt: skip
PREEMPT = "-fsanitize=thread"  # an option of each module


def run(*options):
    """Return what the C++ compiler prints."""
    command = [os.environ.get("CXX", "g++"), *map(str, options)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}\n{done.stderr}")
    return done.stdout


class Module:
    """A compiled module."""

    def load(self, image):
        with tempfile.NamedTemporaryFile(suffix=".so") as file:
            file.write(image)
            file.flush()
            # PyDLL keeps the GIL: the emulated indices and fibers are global, so threads must take turns.
            self.shared = ctypes.PyDLL(file.name)

    def get_function(self, name):
        return Function(self.shared, name)


# Stacks for the 2 x 1024 threads that scheduler.cpp may run at a time; only the pages that are used take memory.
stacks = mmap.mmap(-1, 2048 * ((1 << 16) + 5 * 64), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
stacks.madvise(mmap.MADV_NOHUGEPAGE)
STACKS = ctypes.addressof(ctypes.c_char.from_buffer(stacks))

LAUNCH = struct.Struct("8I5Q")  # `Launch` of scheduler.hpp
SIGNED, UNSIGNED, FLOAT = (struct.Struct(kind).pack for kind in "qQd")


def passed(argument):
    """Return the bytes that CuPy passes for an argument, at least eight; Python numbers have eight."""
    if type(argument) is int:
        return (UNSIGNED if argument >> 63 > 0 else SIGNED)(argument)
    if type(argument) is float:
        return FLOAT(argument)
    assert isinstance(argument, (np.ndarray, np.generic)), type(argument)
    assert argument.size == 1, "one number or one struct"
    return argument.tobytes() + bytes(-argument.nbytes % 8)


CLUSTER = 8  # the most blocks of a cluster on any GPU that has clusters
kernels = []  # the driver knows them by their number, from 1


class Function:
    """A kernel of a module."""

    seed = 0
    allowed = 48 << 10  # bytes of dynamic shared memory, unless minigrad allows more

    def __init__(self, shared, name):
        self.name, self.function, self.count = name, shared[f"run_{name}"], shared[f"count_{name}"]()
        self.sizes = (ctypes.c_size_t * self.count).in_dll(shared, f"sizes_{name}")
        self.most = ctypes.c_int.in_dll(shared, f"most_{name}").value
        self.function.argtypes = ctypes.c_char_p, ctypes.c_void_p
        self.function.restype = ctypes.c_char_p
        kernels.append(self)
        self.ptr = len(kernels)

    def __call__(self, grid, block, args, *, shared_mem=0, **attributes):
        """Start the kernel as CuPy does, and with the keywords of `submit`."""
        assert len(args) == self.count, f"{self.name}: {len(args)} arguments instead of {self.count}"
        held = [ctypes.create_string_buffer(passed(one)) for one in args]
        addresses = (ctypes.c_void_p * self.count)(*map(ctypes.addressof, held))
        self.submit(grid, block, addresses, cuda.get_current_stream().ptr, shared_mem, **attributes)

    def submit(self, grid, block, addresses, stream, shared=0, cluster=0, cooperative=False):
        """Execute the kernel on a stream, with copies of the arguments at addresses."""
        (x, y, z), (width, height, depth) = ((*lengths, 1, 1)[:3] for lengths in (grid, block))
        if width * height * depth > self.most:
            raise RuntimeError(f"{self.name}: a block of {block} threads, more than the launch bounds of {self.most}")
        if shared > self.allowed:
            raise RuntimeError(
                f"{self.name}: {shared} bytes of dynamic shared memory, more than the {self.allowed} allowed"
            )
        if cluster > CLUSTER or (cluster and x % cluster) or (cluster and cooperative):
            raise RuntimeError(f"{self.name}: {x} blocks in clusters of {cluster}")
        if cooperative and x * y * z > self.resident(width * height * depth, shared):
            raise RuntimeError(
                f"{self.name}: a cooperative grid of {x * y * z} blocks, which cannot run at the same time"
            )
        cuda.check_devices(self.name, [ctypes.c_uint64.from_address(addresses[i]).value for i in range(self.count)])
        if cuda.queue_of(stream) is not None:
            held = [ctypes.create_string_buffer(ctypes.string_at(addresses[i], self.sizes[i]), self.sizes[i])
                    for i in range(self.count)]  # fmt: skip
            addresses = (ctypes.c_void_p * self.count)(*map(ctypes.addressof, held))
            addresses.held = held
        lengths = x, y, z, width, height, depth, cluster, cooperative, shared
        cuda.submit(stream, lambda: self.run(lengths, addresses))

    def resident(self, threads, shared):
        """Return how many blocks run at a time: one on each multiprocessor."""
        return cuda.MULTIPROCESSORS * (threads <= self.most and shared <= cuda.SHARED)

    def run(self, lengths, addresses):
        Function.seed = (Function.seed + 0x9E3779B97F4A7C15) % 2**64
        launch = LAUNCH.pack(*lengths, Function.seed, *cuda.allocations(), STACKS)
        if failure := self.function(launch, addresses):
            raise RuntimeError(f"{self.name}: {failure.decode()}")


# ── the driver ────────────────────────────────────────────────────────────────────────────────────

INVALID, NO_CONTEXT, FAILED = 1, 201, 719
failure = [b""]


def launch_kernel(kernel, x, y, z, width, height, depth, shared, cluster, cooperative, stream, addresses):
    try:
        sizes = (x, y, z), (width, height, depth)
        kernels[kernel - 1].submit(*sizes, addresses, stream, shared, cluster, bool(cooperative))
    except Exception as error:  # minigrad raises it again
        failure[0] = str(error).encode()
        return FAILED
    return 0


def allow_shared(kernel, size):
    if size > cuda.SHARED:
        return INVALID
    kernels[kernel - 1].allowed = size
    return 0


def count_resident(count, kernel, threads, shared, cluster):
    function = kernels[kernel - 1]
    if shared > function.allowed or cluster > CLUSTER:
        return INVALID
    blocks = function.resident(threads, shared)
    count[0] = blocks // (cluster or cuda.MULTIPROCESSORS)
    return 0


def get_device(device):
    if not hasattr(cuda.context, "current"):
        return NO_CONTEXT
    device[0] = cuda.chosen[-1]
    return 0


def get_error_name(error, name):
    name[0] = failure[0]
    return 0


C, U, SIZE = ctypes.c_int, ctypes.c_uint, ctypes.c_size_t
POINTERS = ctypes.POINTER(ctypes.c_void_p)
CALLBACKS = {
    "launch_kernel": ctypes.CFUNCTYPE(C, SIZE, U, U, U, U, U, U, U, U, C, SIZE, POINTERS)(launch_kernel),
    "allow_shared": ctypes.CFUNCTYPE(C, SIZE, C)(allow_shared),
    "count_resident": ctypes.CFUNCTYPE(C, ctypes.POINTER(C), SIZE, U, SIZE, U)(count_resident),
    "get_device": ctypes.CFUNCTYPE(C, ctypes.POINTER(C))(get_device),
    "get_error_name": ctypes.CFUNCTYPE(C, C, ctypes.POINTER(ctypes.c_char_p))(get_error_name),
}


def load_library(name, *sources, **callbacks):
    """Compile and load a library, which is then found by its name, and set its pointers; return its path."""
    texts = [(FOLDER / one).read_bytes() for one in sources]
    made = Path(os.environ["MINIGRAD_CACHE_DIR"], f"{name}-{zlib.crc32(b''.join(texts)):08x}")
    if not made.exists():
        made.parent.mkdir(parents=True, exist_ok=True)
        # Compiled elsewhere and then renamed, as another process may compile it at the same time.
        with tempfile.TemporaryDirectory(dir=made.parent) as folder:
            run("-std=c++20", "-shared", "-fPIC", "-pthread", "-O2", "-fno-omit-frame-pointer", f"-Wl,-soname,{name}",
                *(FOLDER / one for one in sources if one.endswith(".cpp")), "-o", f"{folder}/{made.name}")  # fmt: skip
            Path(folder, made.name).rename(made)
    library = ctypes.CDLL(str(made))
    for pointer, callback in callbacks.items():
        ctypes.c_void_p.in_dll(library, pointer).value = ctypes.cast(callback, ctypes.c_void_p).value
        assert hasattr(ctypes.CDLL(name), pointer), f"{name} of a real GPU has been loaded already"
    return made


driver = load_library("libcuda.so.1", "driver.cpp", "scheduler.cpp", "scheduler.hpp", **CALLBACKS)
cuda.compiler = SimpleNamespace(compile_using_nvrtc=compile_using_nvrtc)
cuda.nccl = nccl
cuda.function = SimpleNamespace(Module=Module)

#!/usr/bin/env bash
# NVRTC 13.5.37, given --Ofast-compile=mid for compute capability 8.0, compiles any kernel and writes into the log that
# it does not know an argument that it has passed to itself: "opt: Unknown command line argument
# '-enable-scalar-pre=false'". For 10.0, with `max` in place of `mid`, and by NVRTC 13.4.59, the log is empty.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat > "$folder/logs.py" <<'PY'
import ctypes, glob, sys
for builtins in glob.glob(sys.argv[1] + "/nvidia/*/lib/libnvrtc-builtins.so.*"):
    ctypes.CDLL(builtins, ctypes.RTLD_GLOBAL)
nvrtc = ctypes.CDLL(glob.glob(sys.argv[1] + "/nvidia/*/lib/libnvrtc.so.*")[0])
for architecture, mode in (80, b"mid"), (80, b"max"), (100, b"mid"):
    program, log = ctypes.c_void_p(), ctypes.create_string_buffer(10000)
    code = b'extern "C" __global__ void k(float* x) { x[threadIdx.x] *= 2; }'
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), code, b"k.cu", 0, None, None)
    options = (ctypes.c_char_p * 2)(b"--gpu-architecture=sm_%d" % architecture, b"--Ofast-compile=" + mode)
    status = nvrtc.nvrtcCompileProgram(program, 2, options)
    nvrtc.nvrtcGetProgramLog(program, log)
    print(architecture, mode.decode(), status, log.value.decode().strip() or "nothing")
PY
for version in 13.4.59 13.5.37; do
    python3 -m pip --disable-pip-version-check install -q --no-deps --no-compile --target "$folder/$version" \
        "nvidia-cuda-nvrtc==$version" 2> /dev/null
    python3 "$folder/logs.py" "$folder/$version" | tee "$folder/log" | sed "s/^/$version: /"
    [ "$(grep -c ' 0 nothing$' "$folder/log")" = $([ $version = 13.4.59 ] && echo 3 || echo 2) ]
done
grep -q "80 mid 0 opt: Unknown command line argument '-enable-scalar-pre=false'" "$folder/log"

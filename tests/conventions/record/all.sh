#!/bin/bash
# Record everything again: each script in a fresh virtual environment below the folder given. Takes 5 GB.
set -e
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "${1:?expected a folder for the environments}" && cd "$1"

record() { # name, Python, packages, packages without what they need, scripts
    "$2" -m venv --clear "$1"
    "$1/bin/pip" -q install $3
    [ -z "$4" ] || "$1/bin/pip" -q install --no-deps $4
    for script in $5; do "$1/bin/python" "$here/$script.py"; done
}

record jax python3.12 "jax==0.12.0.1 flax==0.12.12 optax==0.2.8 dm-haiku==0.0.17 equinox==0.13.8" "" "run_flax run_haiku"
jax/bin/python "$here/common.py"
record keras python3.12 "keras==3.15.1 jax==0.12.0.1" "" run_keras
KERAS_BACKEND=numpy keras/bin/python "$here/run_keras.py"
keras/bin/pip -q install torch==2.13.0
KERAS_BACKEND=torch keras/bin/python "$here/run_keras.py"
record paddle python3.11 paddlepaddle==3.3.1 "" run_paddle
record mindspore python3.11 "mindspore==2.10.0 numpy<2" "" run_mindspore
record mlx python3.12 "mlx[cpu]==0.32.4 numpy" "" run_mlx
record onnx python3.12 "onnx==1.23.2 onnxruntime==1.31.1" "" run_onnx
record trained python3.12 "g2p-en==2.1.0 magika==1.0.3 onnx==1.23.2 onnxruntime==1.31.1" silero-vad==6.2.3 run_trained

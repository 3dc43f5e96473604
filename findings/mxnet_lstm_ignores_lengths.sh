#!/usr/bin/env bash
# MXNet 1.9.1 (CPU): gluon.rnn.LSTM and GRU made with use_sequence_length=True require sequence_length and do not use
# it: with lengths 2 and 4 as with 4 and 4, the results are the same, the padding of the first sample changes its last
# state, and the second direction begins in the padding.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --disable-pip-version-check install -q mxnet==1.9.1 numpy==1.23.5 2> /dev/null
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import mxnet
import numpy as np
from mxnet import gluon, nd

x = np.random.default_rng(0).normal(size=(4, 2, 3)).astype("float32")
padded = x.copy()
padded[2:, 0] = 9
for name, layer in {
    "LSTM": gluon.rnn.LSTM(2, use_sequence_length=True, input_size=3),
    "GRU": gluon.rnn.GRU(2, use_sequence_length=True, input_size=3),
    "bidirectional LSTM": gluon.rnn.LSTM(2, use_sequence_length=True, input_size=3, bidirectional=True),
}.items():
    layer.initialize(mxnet.init.Uniform(0.5))

    def run(x, lengths):
        y, state = layer(nd.array(x), layer.begin_state(2), sequence_length=nd.array(lengths))
        return y.asnumpy(), state[0].asnumpy()

    try:
        layer(nd.array(x), layer.begin_state(2))
    except mxnet.base.MXNetError as error:
        print(f"{name:19} without lengths: {str(error).strip().splitlines()[-1]}")
    else:
        raise SystemExit("no lengths are required")
    (y, state), (whole, whole_state), (_, changed) = run(x, [2, 4]), run(x, [4, 4]), run(padded, [2, 4])
    print(f"{name:19} lengths change it by {abs(y - whole).max()}, padding changes the state by {abs(state - changed).max():.2f}")
    assert (y == whole).all() and (state == whole_state).all() and abs(state - changed).max() > 0.1
PYTHON

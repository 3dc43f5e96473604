"""Record the networks that `examples/trained` ports, with drawn weights: nothing of the trained ones is kept.

Needs ``pip install g2p-en==2.1.0 magika==1.0.3 onnx==1.23.2 onnxruntime==1.31.1`` and ``pip install --no-deps
silero-vad==6.2.3``.
"""

import importlib.metadata
from pathlib import Path
from unittest import mock

import numpy as np
import onnx
import onnxruntime
from common import BYTES, FRAMES, SOUNDS, STATES, Recorder, drawn

recorder = Recorder("trained", "g2p-en", "silero-vad", "magika", "onnxruntime")


def run(case, package, path, **inputs):
    """Run a model with drawn weights in the places of the trained ones."""
    model = onnx.load(Path(importlib.metadata.distribution(package).locate_file(path)))
    shapes = {}
    for array in model.graph.initializer:
        old = onnx.numpy_helper.to_array(array)
        if old.dtype == np.float32 and (old.size > 1 or old.ndim == 1):
            shapes[array.name] = np.array(old.shape)
            array.CopyFrom(onnx.numpy_helper.from_array(drawn(case, array.name, old.shape), array.name))
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    found = session.run(None, inputs)
    recorder.add(case, shapes=shapes, **dict(zip([x.name for x in session.get_outputs()], found)))


run("speech", "silero-vad", "silero_vad/data/silero_vad_16k_sequence.onnx", input=FRAMES, **STATES)
run("file_types", "magika", "magika/models/standard_v3_3/model.onnx", bytes=BYTES)

with mock.patch("nltk.download"):
    from g2p_en import g2p
g2p.cmudict = mock.Mock()
original = g2p.G2p()
shapes = {name: array.shape for name, array in original.variables.items()}
for name, shape in shapes.items():
    setattr(original, name, drawn("pronounce", name, shape))
word = "gradient"
given = [[getattr(original, f"{part}_{k}") for k in ("w_ih", "w_hh", "b_ih", "b_hh")] for part in ("enc", "dec")]
last = original.gru(original.encode(word), len(word) + 1, *given[0])[:, -1]
y = original.gru(original.dec_emb[SOUNDS][None], len(SOUNDS), *given[1], h0=last)
recorder.add("pronounce", shapes=shapes, y=y @ original.fc_w.T + original.fc_b)
recorder.write()

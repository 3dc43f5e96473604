"""The ports of `examples/trained` beside what the originals compute with the same drawn weights, as recorded."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from test_recorded import FILES, difference

import minigrad as mg
from minigrad import convert

ROOT = Path(__file__).parents[2]
PORTS = ROOT / "examples" / "trained"
FOUND = FILES["trained"]
pytestmark = pytest.mark.skipif(not PORTS.exists(), reason="no examples beside these tests")


def script(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    spec.loader.exec_module(module := importlib.util.module_from_spec(spec))
    return module


common = script(Path(__file__).parent / "record" / "common.py")


def weights(case):
    """Return the drawn weights by the names that the original has for them."""
    start = f"{case}/shapes/"
    shapes = {name.removeprefix(start): shape for name, shape in FOUND.items() if name.startswith(start)}
    return {name: common.drawn(case, name, shape) for name, shape in shapes.items()}


def test_the_pronouncer():
    port = script(PORTS / "pronounce.py")
    net = port.ported(weights("pronounce"))
    y = net(port.spelled("gradient")[None], None, mg.tensor(common.SOUNDS[None]))
    assert difference(y, FOUND["pronounce/y"]) < 1e-5
    assert abs(FOUND["pronounce/y"]).max() > 0.1


def test_the_voice_detector():
    port, arrays = script(PORTS / "speech.py"), iter(weights("speech").values())
    layers = ["spectrum", *(f"encoder.{k}" for k in (0, 2, 4, 6)), "output", "lstm"]
    inputs = {"spectrum": ["W"], "lstm": ["W", "R", "B"]}
    nodes = {layer: {name: next(arrays) for name in inputs.get(layer, ["W", "B"])} for layer in layers}
    net = port.Detector()
    net.load_state_dict(convert.onnx(nodes, net))
    state = tuple(mg.tensor(common.STATES[name]) for name in "hc")
    y, (h, c) = net(mg.tensor(common.FRAMES), state)
    for ours, name in ((y, "speech_probs"), (h, "hn"), (c, "cn")):
        assert difference(ours, FOUND[f"speech/{name}"]) < 1e-5
    assert np.ptp(FOUND["speech/speech_probs"]) > 1e-3


def test_the_kinds_of_files():
    net = script(PORTS / "file_types.py").ported(weights("file_types"))
    y = net(mg.tensor(common.BYTES))
    assert difference(y, FOUND["file_types/target_label"]) < 1e-5
    assert np.ptp(FOUND["file_types/target_label"], axis=0).max() > 1e-3

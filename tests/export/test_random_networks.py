"""Thirty random networks give in onnxruntime what they give here, at other lengths than they were exported with."""

import pytest
from random_networks import networks

import minigrad as mg

pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
NETWORKS = {name: rest for name, *rest in networks()}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_random_network(name, tmp_path):
    module, example, free, other = NETWORKS[name]
    mg.onnx.export(module, example, tmp_path / "m.onnx", free)
    session = runtime.InferenceSession(tmp_path / "m.onnx")
    (found,) = session.run(None, {key: x.numpy() for key, x in other.items()})
    ours = module(**other).detach().numpy()
    assert found.shape == ours.shape
    assert abs(found - ours).max() <= 1e-5 * max(1, abs(ours).max())


def test_most_networks_with_a_norm_in_time_have_lengths():
    recurrent = [(rest[0].layer, rest[1]) for name, rest in NETWORKS.items() if name.endswith("sequences")]
    normalized = [arguments for layer, arguments in recurrent if layer.norm]
    assert len(normalized) >= 6
    assert sum("lengths" in arguments for arguments in normalized) >= 5

"""Recognize files of other formats by their first bytes and the endings of their names, and say how to convert them."""

import re

UNREAD = "which is not read, as that could run any code"
TRUSTED = f"a pickle, {UNREAD}. If its writer can be trusted, and it holds arrays by name, convert it:\n    "
UNPACK = "a compressed file: unpack it first"

# The ending of the name, or "" for any; a pattern of the first bytes; and what the file is, with what to do, in which
# PATH takes the place of its path. An archive begins with the name of its first file. The first row that fits counts.
KINDS = [
    ("", rb"\x93NUMPY", """a NumPy array. To convert it:
    mg.save({"x": np.load(PATH)}, "model.safetensors")"""),
    ("", rb"PK\x03\x04.{26}[^\0]*\.npy", """an archive of NumPy arrays. To convert it:
    mg.save(np.load(PATH), "model.safetensors")"""),
    ("", rb"PK\x03\x04.{26}[^\0]*/data\.pkl|\x80\x02\x8a\x0al\xfc\x9cF\xf9 j", f"""a pickle of PyTorch, {UNREAD}.
With PyTorch, convert it; the second line also keeps the numbers and parts of a checkpoint, for mg.load_checkpoint:
    mg.save(torch.load(PATH, weights_only=True), "model.safetensors")
    mg.save_checkpoint("model.safetensors", **torch.load(PATH, weights_only=True))"""),
    ("", rb"PK\x03\x04.{26}[^\0]*/data/0", """a TorchScript archive. With PyTorch, convert it:
    mg.save(torch.jit.load(PATH).state_dict(), "model.safetensors")"""),
    ("", rb"PK\x03\x04.{26}(metadata\.json|config\.json)", """an archive, as Keras writes it. With Keras, convert it:
    mg.save({x.path: x.numpy() for x in keras.models.load_model(PATH).weights}, "model.safetensors")"""),
    ("", rb"PK\x03\x04", "a zip archive: unpack it first"),
    ("", rb"\x89HDF\r\n", """an HDF5 file. With h5py, convert it:
    names = []
    with h5py.File(PATH) as file:
        file.visit(names.append)
        arrays = {name: file[name][()] for name in names if hasattr(file[name], "shape")}
    mg.save(arrays, "model.safetensors")"""),
    (".pdparams", rb"\x80", TRUSTED + 'mg.save(paddle.load(PATH, return_numpy=True), "model.safetensors")'),
    (".joblib", rb"[^{]", TRUSTED + 'mg.save(joblib.load(PATH), "model.safetensors")'),
    ("", rb"\x80[\x02-\x05].{,300}joblib", TRUSTED + 'mg.save(joblib.load(PATH), "model.safetensors")'),
    ("", rb"\x80[\x02-\x05](?!\0)", TRUSTED + 'mg.save(pickle.load(open(PATH, "rb")), "model.safetensors")'),
    ("", rb"GGUF", """a GGUF file. With gguf, convert it:
    tensors = {x.name: gguf.dequantize(x.data, x.tensor_type) for x in gguf.GGUFReader(PATH).tensors}
    mg.save(tensors, "model.safetensors")"""),
    (".onnx", rb"\x08", """an ONNX model. With onnx, convert its weights:
    weights = {x.name: onnx.numpy_helper.to_array(x) for x in onnx.load(PATH).graph.initializer}
    mg.save(weights, "model.safetensors")"""),
    (".ckpt", rb"\n", """no safetensors file. If MindSpore wrote it, convert it with the network:
    mindspore.save_checkpoint(network, "model.safetensors", format="safetensors")"""),
    ("", rb"\x1f\x8b\x08|BZh|\xfd7zXZ|\x28\xb5\x2f\xfd|\x78[\x01\x5e\x9c\xda](?!\0)", UNPACK),
    ("", rb"version https://git-lfs", "a pointer of Git LFS to the file itself, which `git lfs pull` downloads"),
    ("", rb"\s*<(!doctype|!DOCTYPE|html|\?xml)", "a web page: download the file itself"),
    ("", rb'\s*\{.*"weight_map"', """an index of several files. To read them:
    folder = pathlib.Path(PATH).parent
    files = set(json.loads(pathlib.Path(PATH).read_text())["weight_map"].values())
    tensors = {name: x for file in files for name, x in mg.load(folder / file).items()}"""),
    ("", rb"(?:[\t\n\r -~]|[\xc2-\xf4][\x80-\xbf]{1,3}){4,}.{,3}\Z",
     "a text file; numpy.loadtxt reads tables of numbers"),
]  # fmt: skip


def recognize(start: bytes, path: str) -> str | None:
    """Say what a file with these first bytes is and what to do; None if that is unknown."""
    if start[8:9] != b"{":  # the header of a safetensors file begins here
        for ending, pattern, text in KINDS:
            if path.endswith(ending) and re.match(pattern, start, re.DOTALL):
                return text.replace("PATH", repr(path))
    return None

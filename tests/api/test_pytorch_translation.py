"""`python -m minigrad.pytorch`: what it writes, what it reports and leaves, and what it does not touch."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from minigrad.pytorch.__main__ import main
from minigrad.pytorch.translation import Translator

HEAD = """import torch
import torch.nn as nn
import torch.nn.functional as F
import copy
import numpy as np
x = torch.ones(2, 3)
y = torch.ones(2, 3)
net = nn.Linear(3, 3)
a = np.ones((2, 3))
device = torch.device("cpu")
"""


def translate(text, head=HEAD):
    """Return the translation of some lines, and the findings there."""
    found = Translator((head + text).encode())
    line = head.count("\n")
    lines = found.rewritten().split("\n")[line:]
    return "\n".join(lines), [f for f in found.findings if f.line > line]


@pytest.mark.parametrize(
    "theirs, ours",
    [
        ("x.max(1)[1]", "x.argmax(1)"),
        ("x.max(1)[-1]", "x.argmax(1)"),
        ("x.data.max(1, keepdim=True)[1]", "x.data.argmax(1, keepdims=True)"),
        ("x.max(dim=1).values", "x.max(axis=1)"),
        ("x.max(1, True)[0]", "x.max(1, keepdims=True)"),
        ("net(x).min(-1).indices", "net(x).argmin(-1)"),
        ("torch.max(x, 1)[1].item()", "mg.argmax(x, 1).item()"),
        ("torch.max(input=x, dim=1)[0]", "mg.max(input=x, axis=1)"),
        ("_, p = torch.max(x, 1)", "p = mg.argmax(x, 1)"),
        ("m, _ = torch.max(x, dim=1)", "m = mg.max(x, axis=1)"),
        ("_, p = torch.max(x, 1)\nprint(_)", "_, p = mg.max(x, 1), mg.argmax(x, 1)\nprint(_)"),
        ("v, i = x.min(1)", "v, i = x.min(1), x.argmin(1)"),
        ("v, i = net(x).min(1)", "v, i = (v := net(x)).min(1), v.argmin(1)"),
        ("v, i = torch.max(net(x), 1)", "v, i = mg.max((v := net(x)), 1), mg.argmax(v, 1)"),
        ("best = x.max(1)", "best = (x.max(1), x.argmax(1))"),
        ("x.max(1)[1] + torch.max(x.min(0)[0], 0)[0]", "x.argmax(1) + mg.max(x.min(0), 0)"),
        ("torch.max(x, y)", "mg.maximum(x, y)"),
        ("x.min(y * 2)", "x.minimum(y * 2)"),
        ("torch.max(x)", "mg.max(x)"),
        ("x.min().item()", "x.min().item()"),
        ("x.sort()[1]", "x.argsort()"),
        ("v, i = x.sort(0, True)", "v, i = x.sort(0, descending=True), x.argsort(0, descending=True)"),
        ("torch.sort(x, dim=1, descending=True)[0]", "mg.sort(x, axis=1, descending=True)"),
        ("x.argsort(1, True)", "x.argsort(1, descending=True)"),
        ("torch.argsort(x, dim=1)", "mg.argsort(x, dim=1)"),
        ("x.split(2)", "x.split_with_sizes(2)"),
        ("torch.split(x, [1, 2], dim=1)", "mg.split_with_sizes(x, [1, 2], dim=1)"),
        ("x.split(split_size=2, dim=1)", "x.split_with_sizes(split_sizes=2, dim=1)"),
        ("x.transpose(-2, -1)", "x.swapaxes(-2, -1)"),
        ("torch.transpose(x, 0, 1)", "mg.swapaxes(x, 0, 1)"),
        ("x.transpose(dim0=0, dim1=1)", "x.swapaxes(axis1=0, axis2=1)"),
        ("x.std()", "x.std(correction=1)"),
        ("x.std(0, )", "x.std(0, correction=1)"),
        ("x.var(dim=0, keepdim=True)", "x.var(dim=0, keepdim=True, correction=1)"),
        ("torch.std(x, 0, False, True)", "mg.std(x, 0, unbiased=False, keepdim=True)"),
        ("x.std(False)", "x.std(unbiased=False)"),
        ("x.std(unbiased=False)", "x.std(unbiased=False)"),
        ("torch.meshgrid(x[0], y[0])", 'mg.meshgrid(x[0], y[0], indexing="ij")'),
        ('torch.meshgrid(x[0], y[0], indexing="xy")', 'mg.meshgrid(x[0], y[0], indexing="xy")'),
        ("torch.nonzero(x > 0)", "mg.argwhere(x > 0)"),
        ("x.nonzero(as_tuple=True)[0]", "x.nonzero()[0]"),
        ("torch.nonzero(x, as_tuple=False)", "mg.argwhere(x)"),
        ("torch.equal(x, y)", "x.equal(y)"),
        ("torch.equal(x + y, y)", "(x + y).equal(y)"),
        ("x.repeat(2, 1)", "x.tile(2, 1)"),
        ("x.take(y)", "x.reshape(-1).take(y)"),
        ("torch.Tensor(2, 3)", 'mg.empty(2, 3, dtype="float32")'),
        ("torch.Tensor([2, 3])", 'mg.tensor([2, 3], dtype="float32")'),
        ("torch.LongTensor(a)", 'mg.tensor(a, dtype="int64")'),
        ("torch.Tensor()", 'mg.empty(0, dtype="float32")'),
        ("device.type == 'cuda'", "str(device).partition(\":\")[0] == 'cuda'"),
        ('f"{x.std(0)} {device.type}"', "f\"{x.std(0, correction=1)} {str(device).partition(':')[0]}\""),
        ('f"""{device.type}"""', 'f"""{str(device).partition(":")[0]}"""'),
        ("torch.save(net.state_dict(), 'p')", "mg.save(net.state_dict(), 'p')"),
        ("torch.save({'n': net.state_dict(), 'k': 3}, 'p')", "mg.save_checkpoint('p', **{'n': net.state_dict(), 'k': 3})"),
        ("torch.save({'k': 3}, 'p'); c = torch.load('p', map_location=device)",
         "mg.save_checkpoint('p', **{'k': 3}); c = mg.load_checkpoint('p')"),
        ("torch.load('p', weights_only=True)", "mg.load('p')"),
        ("a, b = torch.utils.data.random_split(x, [1, 1], generator=torch.Generator().manual_seed(4))",
         "a, b = mg.utils.data.random_split(x, [1, 1], seed=4)"),
        ("for v in net.state_dict().values():\n    if v.dtype.is_floating_point: print(v)",
         'for v in net.state_dict().values():\n    if v.dtype.kind == "f": print(v)'),
        ("print(x.dtype.is_floating_point)", 'print((x.dtype.kind == "f"))'),
        ("best = copy.deepcopy(net.state_dict()); torch.save(best, 'p'); net.load_state_dict(torch.load('p'))",
         "best = copy.deepcopy(net.state_dict()); mg.save(best, 'p'); net.load_state_dict(mg.load('p'))"),
        ("s = {k: v.clone() for k, v in net.state_dict().items()}; torch.save(s, 'p'); s = torch.load('p')",
         "s = {k: v.clone() for k, v in net.state_dict().items()}; mg.save(s, 'p'); s = mg.load('p')"),
        ("n = nn.utils.clip_grad_norm_(net.parameters(), 1).detach().cpu()\nprint(n.item())",
         "n = nn.utils.clip_grad_norm_(net.parameters(), 1)\nprint(n)"),
        ("def f(x: torch.Tensor, d=1):\n    return x.std(d)", "def f(x: mg.Tensor, d=1):\n    return x.std(d, correction=1)"),
        ("class N(nn.Module):\n    def forward(self, z):\n        return z.std(0)",
         "class N(nn.Module):\n    def forward(self, z):\n        return z.std(0, correction=1)"),
        ("def f(z):\n    return z.max(1)[1]", "def f(z):\n    return z.argmax(1)"),
        ("s = x.max(1)[1]  # é  keep  this\nt   =   ( y .std( ) )",
         "s = x.argmax(1)  # é  keep  this\nt   =   ( y .std( correction=1) )"),
    ],
)  # fmt: skip
def test_calls_are_written_otherwise(theirs, ours):
    text, findings = translate(theirs)
    assert text == ours
    assert all(f.edited and f.certain for f in findings)
    assert bool(findings) == (ours.replace("mg.", "torch.") != theirs)


@pytest.mark.parametrize(
    "theirs, ours",
    [
        ("import torch", "import minigrad as mg"),
        ("import torch as th\nth.ones(1)", "import minigrad as th\nth.ones(1)"),
        ("import torch, os", "import minigrad as mg, os"),
        ("import torch\nmg = torch.ones(1)", "import minigrad\nmg = minigrad.ones(1)"),
        ("import torch.nn.functional as F", "import minigrad.nn.functional as F"),
        ("import torch.nn\ntorch.nn.Linear(1, 1)", "import minigrad as mg\nmg.nn.Linear(1, 1)"),
        ("from torch import nn, optim", "from minigrad import nn, optim"),
        ("from torch.utils.data import DataLoader", "from minigrad.data import DataLoader"),
        ("import torch.utils.data as data", "import minigrad.data as data"),
        ("from torch.nn.modules import Module", "from minigrad.nn import Module"),
        ("from  torch.optim.lr_scheduler import (  # which\n    StepLR,\n)",
         "from  minigrad.optim.lr_scheduler import (  # which\n    StepLR,\n)"),
    ],
)  # fmt: skip
def test_imports(theirs, ours):
    text, findings = translate(theirs, "")
    assert text == ours
    assert findings
    assert all(f.edited for f in findings)


@pytest.mark.parametrize("theirs, says", [
    ("torch.vmap(net)", "mg.per_sample_grad"), ("nn.Conv3d(1, 1, 1)", "not available"),
    ("from torch.distributions import Normal", "densities"),
    ("from torch.utils.data import IterableDataset", "has a length"), ("import torchvision", "PyTorch's tensors"),
    ("torch.backends.cudnn.benchmark = True", "mg.cuda.is_available()"), ("x.half()", 'x.astype("float32")'),
    ("x.grad_fn", "x.tape()"), ("x.relu_()", "x = `x.relu()`"), ("z = [x]\nz[0].exponential_()", "x.copy_("),
    ("x.nothing()", "no member 'nothing'"), ("net.half()", "mg.set_float32_matmul_precision"),
    ("torch.optim.Adam(net.parameters()).register_step_pre_hook(print)", "before `optimizer.step()`"),
    ("torch.optim.Adam(net.parameters(), betas_of=0.9)", "unexpected keyword argument 'betas_of'"),
    ("torch.utils.data.DataLoader([1], worker_init_fn=None)", "no worker_init_fn"),
    ("x.round(decimals=2)", "unexpected keyword argument 'decimals'"),
    ("x.unique(dim=0)", "unexpected keyword argument 'dim'"), ("F.softmax(x)", "write dim"),
    ("nn.Softmax()", "write dim"), ("x.median(1)", "the lower one"), ("z = torch.max(x, some)", "x.argmax(axis)"),
    ("v, i = torch.max(x, f())", "x.argmax(axis)"), ("torch.save(net, 'p')", "a state_dict"),
    ("torch.onnx.export(net, x, 'p', dynamic_axes={})", "dynamic={'x': {0: 'N'}}"),
    ("torch.utils.data.random_split(x, [1, 1], generator=g)", "write `seed=0`"),
    ("from torch.utils.tensorboard import SummaryWriter", "mg.viz.curves(rows)"),
    ("def f(d):\n    return torch.Tensor(d)", "of this shape"),
])  # fmt: skip
def test_what_is_left_is_reported(theirs, says):
    text, findings = translate(theirs)
    assert any(says in f.why and f.certain and not f.edited for f in findings)
    assert text.replace("mg.", "torch.").replace("minigrad", "torch") in (theirs, theirs.replace("utils.data", "data"))


@pytest.mark.parametrize("text", ["z.std(0)", "z.max(1)", "z.repeat(2, 1)", "z.nonzero()", "z.split(n)", "z.half()"])
def test_what_may_be_numpy_is_left_and_said_to_be_open(text):
    translated, findings = translate(f"def f(z, n):\n    return {text}")
    assert translated.endswith(text)
    assert [(f.certain, f.edited) for f in findings] == [(False, False)]
    assert "if `z` is a tensor" in str(findings[0])


@pytest.mark.parametrize(
    "text",
    r"""
    a.std(0); a.max(0)[1]; v, i = a.max(0); a.transpose(0, 1); a.take([1])
    d = {}; d.values(); d.get("x"); "a b".split(" "); l = [2, 1]; l.sort(); max(l, 3); min(1, 2)
    for line in open("f"):\n    line.split(",")
    x.shape.index(2); x.tolist().index(1); x.dim(); x.size(0); x.numel(); x.detach().cpu().numpy().std(0)
    x.sum(1, True); x.sum(dim=1, keepdim=True); F.relu(x, True); x.mean(0, keepdim=True); torch.where(x > 0)
    x.var(0, unbiased=flag); torch.zeros(2, 3, requires_grad=True); torch.cat([x, y], 1); x.view(-1).permute(0)
    F.cross_entropy(x, y, reduction="sum"); nn.LSTM(2, 3, batch_first=True); net.train(); net.to(device); x.T; x.mT
    with torch.no_grad():\n    loss = net(x).pow(2).mean()
    torch.manual_seed(0); torch.cuda.is_available(); isinstance(x, torch.Tensor); x.dtype == torch.float32
    args.half; cfg.mode; self.storage; np.split(a, 2); np.median(a); sorted(l); l.index(1)
    x[:, None].expand(2, 3, 3).clamp(min=0); x.topk(2, 1, True, True); x.norm(p=2, dim=1); torch.norm(x, 2, 1)
    print(f"{net.training} {x.mean().item():.3f}"); lambda z: z * 2; [p.grad for p in net.parameters()]
    """.strip().split("\n    "),
)  # fmt: skip
def test_no_false_alarm(text):
    text = text.replace("\\n", "\n")
    translated, findings = translate(text)
    assert not [str(f) for f in findings]
    assert translated.replace("mg.", "torch.") == text


def test_a_program_for_minigrad_is_left_alone():
    text = "import minigrad as mg\nx = mg.ones(2)\nx.max(1)[1]; x.std(0); x.split(2)\n"
    found = Translator(text.encode())
    assert found.rewritten() == text
    assert not found.findings


@pytest.mark.parametrize("encoding, newline", [("utf-8", "\r\n"), ("latin-1", "\n"), ("utf-8-sig", "\n")])
def test_bytes_of_the_file_are_kept(tmp_path, encoding, newline, capsys):
    lines = ["# é", "import torch", "x = torch.ones(2)  # é", "s = 'é'; x.std(0)", ""]
    if encoding == "latin-1":
        lines.insert(0, "# -*- coding: latin-1 -*-")
    program = tmp_path / "p.py"
    program.write_bytes(newline.join(lines).encode(encoding))
    assert main([str(program), "--rewrite"]) == 0
    expected = newline.join(lines).replace("import torch", "import minigrad as mg").replace("torch.ones", "mg.ones")
    assert (tmp_path / "p_minigrad.py").read_bytes() == expected.replace("std(0)", "std(0, correction=1)").encode(
        encoding
    )
    assert main([str(program)]) == 1
    line, column = len(lines) - 1, 10
    assert f"{program}:{line}:{column}: x.std(0) -> x.std(0, correction=1): " in capsys.readouterr().out


def test_command(tmp_path):
    first, second, wrong = (tmp_path / name for name in ("first.py", "second.py", "wrong.py"))
    first.write_text("import torch\nprint(torch.ones(2, 2).max(1)[1].tolist())\n")
    second.write_text("from torch import vmap\nimport sys\nsys.exit('executed')\n")
    wrong.write_text("import torch\nx = = 1\n")

    def run(*arguments):
        done = subprocess.run(
            [sys.executable, "-m", "minigrad.pytorch", *map(str, arguments)], capture_output=True, text=True,
            cwd=tmp_path,
        )  # fmt: skip
        return done.returncode, done.stdout.splitlines(), done.stderr

    status, lines, _ = run("first.py", "second.py")
    assert status == 1
    assert [re.match(r"\w+\.py:\d+:\d+: ", line)[0] for line in lines] == [
        "first.py:1:1: ", "first.py:2:7: ", "second.py:1:1: ", "second.py:1:19: ",
    ]  # fmt: skip
    status, lines, _ = run("--rewrite", "first.py")
    assert (status, lines) == (0, ["first_minigrad.py: 2 places rewritten, 0 left to look at"])
    translated = subprocess.run([sys.executable, "first_minigrad.py"], capture_output=True, text=True, cwd=tmp_path)
    assert translated.stdout == "[0, 0]\n"
    status, _, error = run("--rewrite", "first.py")
    assert status == 2
    assert "first_minigrad.py exists: name the file to write with -o" in error
    assert run("--rewrite", "first.py", "-o", "first_minigrad.py")[0] == 0
    status, lines, _ = run("--rewrite", "first.py", "second.py", "-o", "out")
    assert status == 1
    assert (len(lines), sorted(p.name for p in (tmp_path / "out").iterdir())) == (3, ["first.py", "second.py"])
    assert run("first_minigrad.py")[:2] == (0, [])
    assert run("first.py", "-o", "out")[0] == 2
    status, _, error = run("wrong.py", "missing.py", "first.py")
    assert status == 2
    assert error.count("\n") == 2
    assert "wrong.py: invalid syntax" in error
    assert Path(tmp_path / "second.py").read_text().startswith("from torch")

"""Every public name is tested: it is in the table of operations, or here with the file that tests it."""

import inspect
from pathlib import Path

import pytest
from table import ALL

import minigrad as mg
from minigrad.nn import functional as F

TESTS = Path(__file__).parents[1]
ELSEWHERE = {
    "ops/test_random.py": ["manual_seed", "random"],
    "api/test_creation.py": [
        "arange", "asarray", "empty", "empty_like", "eye", "from_dlpack", "full", "full_like", "linspace", "ones", "ones_like", "tensor",
        "zeros", "zeros_like",
    ],
    "api/test_standard.py": ["can_cast", "e", "finfo", "iinfo", "inf", "isdtype", "nan", "newaxis", "pi", "pow", "result_type"],
    "api/test_reductions.py": ["searchsorted"],
    "ops/test_functions.py": ["nextafter"],
    "engine/test_promotion.py": ["bool", "float32", "float64", "get_default_dtype", "int32", "int64", "set_default_dtype"],
    "engine/test_uint8.py": ["uint8"],
    "engine/test_matmul_precision.py": ["get_float32_matmul_precision", "set_float32_matmul_precision"],
    "nn/test_batch_norm.py": ["batch_norm"],
    "nn/test_norm_family.py": ["batch_renorm"],
    "nn/test_layers.py": ["dropout1d", "dropout2d", "gumbel_softmax"],
    "nn/test_embedding.py": ["embedding"],
    "nn/test_norms.py": ["instance_norm"],
    "api/test_pytorch.py": ["conv1d", "cosine_similarity", "huber_loss", "interpolate", "kl_div"],
    "nn/test_losses.py": [
        "binary_cross_entropy", "binary_cross_entropy_with_logits", "l1_loss", "mse_loss", "nll_loss", "one_hot", "smooth_l1_loss",
    ],
    "ops/test_ctc.py": ["ctc_loss"],
}  # fmt: skip
# Names that compute nothing: the tape and its tools, saving, the machine, and the submodules.
NO_OPERATIONS = {
    "DType", "Function", "CaptureError", "GradientError", "Tensor", "detect_anomaly", "enable_grad", "grad", "gradcheck", "hessian", "is_grad_enabled",
    "hvp", "jacobian", "jvp", "no_grad", "per_sample_grad", "recompute", "capture", "record_source", "value_and_grad", "vjp", "load", "save", "load_checkpoint", "save_checkpoint", "empty_cache",
    "get_num_threads", "set_num_threads", "memory_allocated", "memory_cached", "profile", "show_config",
}  # fmt: skip
TABLED = {op.name for op in ALL}


def public(module):
    return {name for name in dir(module) if not name.startswith("_") and not inspect.ismodule(getattr(module, name))}


def test_every_public_name_is_tested():
    named = {name for names in ELSEWHERE.values() for name in names}
    untested = public(mg) - TABLED - named - NO_OPERATIONS
    assert not untested, f"neither in tests/helpers/table/ nor in {Path(__file__).name}: {sorted(untested)}"


def test_every_function_of_networks_is_tested():
    named = {name for names in ELSEWHERE.values() for name in names}
    untested = set(F.__all__) - TABLED - named
    assert not untested, f"neither in tests/helpers/table/ nor in {Path(__file__).name}: {sorted(untested)}"


@pytest.mark.parametrize("path", ELSEWHERE)
def test_tests_that_are_named_exist(path):
    text = (TESTS / path).read_text()
    assert [name for name in ELSEWHERE[path] if name not in text] == []


def test_the_lists_name_nothing_that_is_gone():
    everything = public(mg) | set(F.__all__) | {"random"}
    listed = TABLED | NO_OPERATIONS | {name for names in ELSEWHERE.values() for name in names}
    assert {name for name in listed if "." not in name} - everything == set()


def test_every_method_is_a_function_of_its_name():
    """Methods that only a tensor has; the table runs the others both as functions and as methods."""
    own = {
        "T", "mT", "backward", "contiguous", "copy", "copy_", "data_ptr", "detach", "device", "dtype", "fill_", "grad", "is_contiguous",
        "is_leaf", "item", "nbytes", "ndim", "numpy", "register_hook", "register_post_accumulate_grad_hook", "requires_grad", "requires_grad_", "set_", "shape", "size",
        "strides", "tape", "to", "to_device", "to_numpy", "tolist", "version", "zero_",
    }  # fmt: skip
    methods = {name for name in dir(mg.zeros(1)) if not name.startswith("_")}
    assert {name for name in methods - own if not hasattr(mg, name)} == set()


def test_every_operation_of_the_engine_is_public():
    """Every op in cext/ops is available in minigrad or minigrad.nn.functional, or used by a layer or optimizer."""
    from minigrad.engine import ops

    hidden = []
    for path in Path(ops.__path__[0]).glob("*.so"):
        module = __import__(f"minigrad.engine.ops.{path.name.partition('.')[0]}", fromlist=["_"])
        for name, function in vars(module).items():
            own = getattr(function, "__module__", None) == module.__name__ and not name.startswith("_")
            if (
                own
                and callable(function)
                and module.__name__.rpartition(".")[2] not in ("optimizer", "arguments", "recurrent")
            ):
                places = [getattr(place, {"absolute": "abs"}.get(name, name), None) for place in (mg, F, mg.random)]
                of_layers = (
                    "weigh", "batch_norm_train", "batch_norm_eval", "normalized_axes", "smooth_l1", "squared_difference",
                    "ranked", "paths_loss", "paths_composition", "together", "append",
                )  # fmt: skip
                if name not in ("getitem", "setitem", *of_layers) and function not in places:
                    hidden.append(f"{module.__name__}.{name}")
    assert hidden == []


def test_no_two_files_of_tests_share_a_name():
    """Pytest would confuse them."""
    names = [path.name for path in TESTS.rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))

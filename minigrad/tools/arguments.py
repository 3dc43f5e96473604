"""Arguments that other frameworks call by other names."""

from inspect import signature
from typing import Any, Self

# Their names, and ours in the class that has them.
ELSEWHERE = {
    "epsilon": "eps", "use_bias": "bias", "has_bias": "bias", "bias_attr": "bias", "learning_rate": "lr",
    "parameters": "params", "rho": "alpha", "beta_1": "betas", "beta_2": "betas", "beta1": "betas", "beta2": "betas",
    "b1": "betas", "b2": "betas", "alpha": "negative_slope", "pad_mode": "padding",
}  # fmt: skip


class Constructed:
    """A class whose constructor, given another framework's argument, says what it is here."""

    def __new__(cls, *args: Any, **given: Any) -> Self:
        for theirs in ELSEWHERE.keys() & given.keys():
            names, here = signature(cls).parameters, ELSEWHERE[theirs]
            if here in names and theirs not in names:
                raise TypeError(
                    f"[{cls.__name__}] expected {here}, which other frameworks call {theirs}, got {theirs}: defaults "
                    f"and meanings differ too, see docs/reference/conventions.md"
                )
        ours = cls.__module__.startswith("minigrad.nn.")
        if ours and "activation" in given and "activation" not in signature(cls).parameters:
            layers = f"nn.Sequential(nn.{cls.__name__}(…), nn.ReLU())"
            raise TypeError(f"[{cls.__name__}] expected no activation, which is a layer here: {layers}")
        return super().__new__(cls)

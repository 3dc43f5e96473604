"""Arguments that other frameworks call by other names."""

from inspect import Signature, signature
from typing import Any, Self

# Their names, and ours in the class that has them.
ELSEWHERE = {
    "epsilon": "eps", "use_bias": "bias", "has_bias": "bias", "bias_attr": "bias", "learning_rate": "lr",
    "parameters": "params", "rho": "alpha", "beta_1": "betas", "beta_2": "betas", "beta1": "betas", "beta2": "betas",
    "b1": "betas", "b2": "betas", "alpha": "negative_slope", "pad_mode": "padding",
}  # fmt: skip


class OfInit:
    """The signature of a class, which is its constructor's: `inspect` of Python 3.11.2 shows that of `__new__`."""

    def __get__(self, instance: Any, cls: Any) -> Signature:
        if instance is not None:
            raise AttributeError(name="__signature__", obj=instance)
        found = signature(cls.__init__)
        return found.replace(parameters=list(found.parameters.values())[1:])


class Constructed:
    """A class whose constructor, given another framework's argument, says what it is here."""

    __signature__ = OfInit()

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

"""PyTorch modules as Circle models, by Samsung's TICO. Needs the packages of the extra ``torch``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from odc_mlir import loading
from odc_mlir.errors import ModelError, OptionError

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp


def from_torch(module: Any, example_inputs: Any) -> ModuleOp:
    """The model that ``module`` computes on inputs like ``example_inputs`` (a tuple of tensors).

    The module is converted in evaluation mode, and left in the mode that it was in. Raises OptionError where TICO is
    not installed, and ModelError, with the reason, where it cannot convert the module.
    """
    try:
        import tico
    except ImportError:
        raise OptionError("converting PyTorch modules needs TICO", hint="pip install 'odc-mlir[torch]'") from None
    training = bool(getattr(module, "training", False))
    arguments = tuple(example_inputs) if isinstance(example_inputs, tuple | list) else (example_inputs,)
    try:
        converted = tico.convert(module.eval(), arguments).circle_binary
    except Exception as error:  # of torch.export and of TICO, which have no base of their own
        text = " ".join(str(error).split()) or type(error).__name__
        raise ModelError(f"TICO cannot convert the module: {text}") from error
    finally:
        module.train(training)
    return loading.load(bytes(converted))

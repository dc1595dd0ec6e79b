"""Find loaders whose samples are already on a device. A copy of a batch to the device then does nothing."""

from __future__ import annotations

import libcst as cst

from chirp_migrate.analysis.dataflow.origins import assigned_values
from chirp_migrate.analysis.devices.device_moves import target_device
from chirp_migrate.analysis.devices.device_value import device_value
from chirp_migrate.analysis.loaders.loader_calls import argument_positions
from chirp_migrate.analysis.loaders.loader_values import LoaderValue
from chirp_migrate.syntax.module import Module
from chirp_migrate.syntax.queries import called_method_name, keyword_arguments

_DEPTH = 4
#: Methods of tensors, and functions, whose results are on the CPU.
_TO_CPU = ("cpu", "numpy", "tolist", "from_numpy")


def has_device_dataset(loader: LoaderValue) -> bool:
    """Return whether every call that may build a loader gets a dataset of tensors that code has moved to a device."""
    datasets = [
        (module, call.args[places["dataset"]].value)
        for module, call in loader.calls
        if not any(one.star for one in call.args) and "dataset" in (places := argument_positions(call))
    ]
    return 0 < len(loader.calls) == len(datasets) and all(_is_on_device(*one) for one in datasets)


def _is_on_device(module: Module, node: cst.BaseExpression, depth: int = _DEPTH) -> bool:
    """Return whether the value of an expression may be on a device.

    This is the case if code moves the value to a device, or computes the value from such a value.

    The analysis follows the values of variables inside their function or class.
    """
    match node:
        case cst.Call(func=function, args=arguments):
            device = keyword_arguments(node).get("device")
            if called_method_name(node) in _TO_CPU:  # also `torch.from_numpy(…)`
                return False
            if target_device(module, node) is not None:
                return True
            if device is not None and device_value(module, device).may_be():
                return True
            owner = [function.value] if isinstance(function, cst.Attribute) else []
            return any(_is_on_device(module, one, depth) for one in (*owner, *(one.value for one in arguments)))
        case cst.Name() | cst.Attribute() if depth:
            values = [one.value for one in assigned_values(module, node)]
            if isinstance(node, cst.Name):  # a loop over the loader may assign its batch to the same name
                values = [one for one in values if module.span(one)[0] < module.span(node)[0]]
            return any(_is_on_device(module, one, depth - 1) for one in values)
        case cst.Tuple(elements=elements) | cst.List(elements=elements):
            return any(_is_on_device(module, one.value, depth) for one in elements)
        case cst.Subscript(value=value):
            return _is_on_device(module, value, depth)
    return False

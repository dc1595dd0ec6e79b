"""Programs that replace ``DataLoader`` at run time, or that contain its name in a string.

Examples are tests with patches, settings, type hints and doctests.
"""

from __future__ import annotations

import random
import textwrap
from collections.abc import Mapping

_HEAD = '''
import contextlib, functools, importlib, os, pickle, random, sys, typing
from unittest import mock
from unittest.mock import patch
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

NAMES = ["DataLoader"]


class Fake(list):
    def __init__(self, data, **given):
        super().__init__(["fake", sorted(given)])


def tried(call):
    try:
        return call()
    except Exception as error:
        return str(type(error))


def failures(function):
    """How many examples of a docstring fail."""
    import doctest

    (test,) = doctest.DocTestFinder(recurse=False).find(function, 'function')
    return doctest.DocTestRunner().run(test, out=lambda text: None).failed
'''

_OWN = ("sys.modules['made_up']", "sys.modules[__name__]", "importlib.import_module('made_up')")
#: Context managers around code that builds loaders. ``module`` is a variable that contains the module. ``OWN`` stands
#: for an expression that returns the module.
_REPLACING = (
    *["contextlib.nullcontext()"] * 12,
    "mock.patch('made_up.DataLoader', Fake)",
    "patch('made_up.DataLoader', new=Fake)",
    "mock.patch(f'{__name__}.DataLoader', Fake)",
    "mock.patch(__name__ + '.DataLoader', Fake)",
    "mock.patch('.'.join(['made_up', NAMES[0]]), Fake)",
    "mock.patch(target='made_up.DataLoader', new=Fake)",
    "patch.object(OWN, 'DataLoader', Fake)",
    "patch.object(module, 'DataLoader', Fake)",
    "patch.object(module, NAMES[0], Fake)",
    "patch.object(target=module, attribute='DataLoader', new=Fake)",
    "patch.multiple('made_up', DataLoader=Fake)",
    "patch.multiple(OWN, DataLoader=Fake)",
    "patch.multiple(module, **{'DataLoader': Fake})",
    "patch.multiple(module, **dict.fromkeys(NAMES, Fake))",
    "patch.dict(OWN.__dict__, {'DataLoader': Fake})",
    "patch.dict('made_up.__dict__', DataLoader=Fake)",
    "patch.dict(vars(module), {'DataLoader': Fake})",
    "patch.dict(vars(module), dict.fromkeys(NAMES, Fake))",
    "replaced(module)",
    "replaced(OWN)",
    "started(module)",
    "helping.replaced(module)",
)
#: Functions that some of the context managers call.
_HELPERS = {
    "replaced": 'def replaced(module):\n    return patch.object(module, "DataLoader", Fake)\n',
    "started": (
        "@contextlib.contextmanager\ndef started(module):\n    before = module.DataLoader\n"
        '    setattr(module, "DataLoader", Fake)\n    yield\n    setattr(module, "DataLoader", before)\n'
    ),
}
#: Expressions that find the class, or its name, by a string.
_LOOKUPS = (
    "0",
    "0",
    "getattr(module, 'DataLoader').__name__",
    "getattr(module, NAMES[0]).__name__",
    "eval('DataLoader').__name__",
    "eval('len(DataLoader([1, 2, 3], batch_size=2))')",
    "globals()['DataLoader'].__name__",
    "vars(module)['DataLoader'].__name__",
    "module.__dict__.get(NAMES[0], int).__name__",
    "sorted(typing.get_type_hints(hinted))",
    "[str(one) for one in typing.get_type_hints(quoted).values()]",
    "failures(hinted)",
    "located(settings()).__name__",
    "helping.reexported()",
    "sorted(one for one in helping.__dict__ if one == 'DataLoader')",
    "pickle.loads(pickle.dumps(module.DataLoader)).__name__",
)


def make_names_in_strings(rng: random.Random) -> tuple[str, Mapping[str, str]]:
    """Return the text of a program, and name → text of its other files."""
    hidden = rng.choice(("", "", "", "OptimalDataLoaderFactory=None", "chirpid_patch=None", "DataLoader=DataLoader"))
    made = rng.choice(
        (
            "DataLoader(data, batch_size=2)",
            "DataLoader(data, batch_size=2, collate_fn=lambda b: [x + by for x in b])",
            "DataLoader(Subset(data, [0, 2]), batch_size=1)",
            "(lambda: DataLoader(data, batch_size=3))()",
            "functools.partial(DataLoader, data)(batch_size=2)",
        )
    )
    replacing, asking = (rng.choice(some).replace("OWN", rng.choice(_OWN)) for some in (_REPLACING, _LOOKUPS))
    loop = rng.random() < 0.3
    used = f"    with {replacing}:\n        seen += [shown(build(DATA)), shown(build(DATA, 3))]\n"
    if loop:
        used = f"    for module in (module,):\n{textwrap.indent(used, '    ')}"
    patches = ("@patch('made_up.DataLoader', Fake)\n", "@patch.multiple('made_up', DataLoader=Fake)\n")
    decorator = rng.choice(("", "", "", "", *patches))
    helper = next((code for word, code in _HELPERS.items() if replacing.startswith(word)), "")
    text = f'''
Alias = "DataLoader"
Loaders = typing.List[{rng.choice(('"DataLoader"', "DataLoader", "int"))}]
DATA = TensorDataset(torch.arange(5))


def shown(one):
    return tried(lambda: list(one))


def hinted(data) -> Loaders:
    """Build.

    >>> len({rng.choice(("build(DATA)", "DataLoader([1, 2, 3], batch_size=2)", "DATA"))})
    3
    """


def quoted(data: {rng.choice(('"DataLoader"', "Dataset", '"typing.Optional[DataLoader]"'))} = None):
    pass


{helper}


def settings():
    with open(os.path.join(os.path.dirname(__file__), "settings.yaml")) as file:
        return file.read().split(": ")[-1].strip()


def located(path):
    owner, _, name = path.rpartition(".")
    return getattr(importlib.import_module(owner), name)


def build(data, by=1, {hidden}):
    return {made}


{decorator}def decorated():
    return shown(build(DATA, 2))


def main():
    import helping

    module = sys.modules[__name__]
    seen = [shown(build(DATA)), tried(lambda: {asking})]
{used}    return [*seen, decorated(), shown(build(DATA, 4))]
'''
    star = rng.choice(("from made_up import *", "from made_up import DataLoader", "import made_up"))
    replacing_there = "def replaced(module):\n    return mock.patch.multiple(module, DataLoader=own.Fake)\n\n\n"
    helping = (
        f"from unittest import mock\n{star}\nimport made_up as own\n\n\n"
        f"{replacing_there if 'helping' in replacing else ''}"
        "def reexported():\n    return own.DataLoader.__name__\n"
    )
    target = rng.choice(("made_up.DataLoader", "torch.utils.data.DataLoader", "made_up.build"))
    return _HEAD + text, {"helping": helping, "settings.yaml": f"loader:\n  _target_: {target}\n"}

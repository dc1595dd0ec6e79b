"""Which mentions of ``DataLoader`` are PyTorch's, and what becomes of each shape of construction."""

from __future__ import annotations

import textwrap

import pytest
import support

from chirp_migrate.plans.plan import Finding, FindingStatus

IMPORT = "from torch.utils.data import DataLoader\n"


def migrate(text: str, **others: str) -> tuple[str, list[Finding]]:
    """Apply the rule to ``pkg/a.py`` beside other modules of ``pkg``."""
    return support.migrate("CHP001", text, path="pkg/a.py", __init__="", **others)


def reasons(findings: list[Finding]) -> list[str]:
    """Why the reported ones were left alone."""
    return [one.why for one in findings if one.status is FindingStatus.REPORT]


@pytest.mark.parametrize(
    "text",
    [
        "from torch.utils.data import DataLoader as DL\nx = DL(d)\n",
        "import torch.utils.data as tud\nx = tud.DataLoader(d)\n",
        "import torch.utils.data\nx = torch.utils.data.DataLoader(d)\n",
        "from torch.utils import data\nx = data.DataLoader(d)\n",
        "from torch.utils.data.dataloader import DataLoader\nx = DataLoader(d)\n",
        "import torch.utils.data.dataloader as loading\nx = loading.DataLoader(d)\n",
        "from torch.utils.data import *\nx = DataLoader(d)\n",
        "from math import *\nfrom torch.utils.data import *\nx = DataLoader(d)\n",
        "from torch.utils.data import DataLoader\nfrom os.path import *\nx = DataLoader(d)\n",
        "from .common import *\nx = DataLoader(d)\n",
        "from pkg.common import *\nx = DataLoader(d)\n",
        "from pkg.star import *\nx = DataLoader(d)\n",
        "from common import DataLoader\nx = DataLoader(d)\n",
        "from . import common\nx = common.DataLoader(d)\n",
        "from torch.utils.data import DataLoader\nfrom .other import *\nx = DataLoader(d)\n",
        f"try:\n    {IMPORT}except ImportError:\n    DataLoader = None\nx = DataLoader(d)\n",
        "try:\n    from torch.utils.data import DataLoader\nexcept ImportError:\n    raise\nx = DataLoader(d)\n",
        "import torch\nif torch.__version__ > '2':\n    from torch.utils.data import DataLoader\nelse:\n"
        "    from torch.utils.data.dataloader import DataLoader\nx = DataLoader(d)\n",
        f"{IMPORT}def f(DataLoader2):\n    return [DataLoader(d) for d in DataLoader2]\n",
        f"{IMPORT}class A:\n    DataLoader = 3\n    def f(self):\n        return DataLoader(d)\n",
        f"def f():\n    global DataLoader\n    {IMPORT}\ndef g():\n    return DataLoader(d)\n",
    ],
)
def test_names_that_are_pytorchs(text: str) -> None:
    after, findings = migrate(text, common=IMPORT, star="from .common import *\n", other="def helper(): ...\n")
    assert "OptimalDataLoaderFactory.create_loader(d)" in after
    assert [one.status for one in findings] == [FindingStatus.REWRITE]


def test_a_name_that_python_reads_as_the_class_keeps_its_import() -> None:
    text = f"{IMPORT}x = DataLoader(d)\ny = \N{FULLWIDTH LATIN CAPITAL LETTER D}ataLoader(d)\n"
    assert IMPORT in migrate(text)[0]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("from mylib import DataLoader\nx = DataLoader(d)\n", []),
        ("class DataLoader:\n    pass\nx = DataLoader(d)\n", []),
        ("from .own import *\nx = DataLoader(d)\n", []),
        ("from torch.utils.data import DataLoader\ndef f(DataLoader):\n    return DataLoader(d)\n", []),
        ("from torch.utils.data import DataLoader\n[DataLoader(d) for DataLoader in classes]\n", []),
        ("from torch.utils.data import DataLoader\nlambda DataLoader: DataLoader(d)\n", []),
        (
            f"{IMPORT}lambda \N{FULLWIDTH LATIN CAPITAL LETTER D}ataLoader: DataLoader(d)\n",
            [],
        ),
        (
            f"{IMPORT}if fast:\n    class \N{FULLWIDTH LATIN CAPITAL LETTER D}ataLoader:\n        pass\n"
            "x = DataLoader(d)\n",
            ["ambiguous-name"],
        ),
        ("x.DataLoader(d)\n", []),
        (
            "try:\n    from fast import DataLoader\nexcept ImportError:\n"
            "    from torch.utils.data import DataLoader\nx = DataLoader(d)\n",
            ["ambiguous-name"],
        ),
        ("from torch.utils.data import DataLoader\nfrom fast.all import *\nx = DataLoader(d)\n", ["ambiguous-name"]),
        ("from torch.utils.data import DataLoader\nfrom .own import *\nx = DataLoader(d)\n", ["ambiguous-name"]),
        (
            f"{IMPORT}if fast:\n    class DataLoader:\n        pass\nx = DataLoader(d)\n",
            ["ambiguous-name"],
        ),
    ],
)
def test_names_that_are_not_or_may_be_another(text: str, why: list[str]) -> None:
    after, findings = migrate(text, own="class DataLoader: ...\n")
    assert after == text
    assert reasons(findings) == why


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("DataLoader(d, *rest)", "OptimalDataLoaderFactory.create_loader(d, *rest)"),
        ("DataLoader(*everything)", "OptimalDataLoaderFactory.create_loader(*everything)"),
        ("DataLoader(d, 4, **options)", "OptimalDataLoaderFactory.create_loader(d, 4, **options)"),
        ("DataLoader[int](d)", "OptimalDataLoaderFactory.create_loader(d)"),
        ("DataLoader ( d )", "OptimalDataLoaderFactory.create_loader ( d )"),
        ("DataLoader(dataset=d, shuffle=s)", "OptimalDataLoaderFactory.create_loader(dataset=d, shuffle=s)"),
        ("DataLoader(d, sampler=s)", "OptimalDataLoaderFactory.create_loader(d, sampler=s)"),
        ("DataLoader(d, sampler=S(d))", "OptimalDataLoaderFactory.create_loader(d, sampler=S(d))"),
        ("DataLoader(d, sampler=None)", "OptimalDataLoaderFactory.create_loader(d, sampler=None)"),
        (
            "DataLoader(d, shuffle=a, batch_sampler=s)",
            "OptimalDataLoaderFactory.create_loader(d, shuffle=a, batch_sampler=s)",
        ),
        ("DataLoader(d, shuffle=False)", "OptimalDataLoaderFactory.create_loader(d, shuffle=False)"),
        (
            "DataLoader(d, 4, num_workers=n)  # kept",
            "OptimalDataLoaderFactory.create_loader(d, 4, num_workers=n)  # kept",
        ),
        (
            "{k: DataLoader(v) for k, v in d.items()}",
            "{k: OptimalDataLoaderFactory.create_loader(v) for k, v in d.items()}",
        ),
        ("partial(DataLoader, batch_size=4)", "partial(OptimalDataLoaderFactory.create_loader, batch_size=4)"),
        ("f(DataLoader)(d)", None),
        ("{'torch': DataLoader}[kind](d)", None),
        ("[DataLoader, other]", None),
        ("DataLoader()", None),
    ],
)
def test_shapes_of_construction(before: str, after: str | None) -> None:
    header = "from functools import partial\nfrom torch.utils.data import DataLoader\n"
    text, findings = migrate(f"{header}x = {before}\n")
    assert len(findings) == 1 and findings[0].message
    if after is None:
        assert findings[0].status is FindingStatus.REPORT and text == f"{header}x = {before}\n"
    else:
        assert text.endswith(f"x = {after}\n")


@pytest.mark.parametrize(
    ("look", "is_rewritten"),
    [
        ("print(x.func.__name__)", False),
        ("assert x.func == DataLoader", False),
        ("getattr(x, 'func', x)", False),
        ("x.func(d)", True),  # the call that is meant
        ("self.func = x", True),
        ("print(self.func)", True),
    ],
)
def test_a_partial_whose_function_the_project_reads_keeps_the_class(look: str, is_rewritten: bool) -> None:
    header = "from functools import partial\nfrom torch.utils.data import DataLoader\n"
    text, findings = migrate(f"{header}x = partial(DataLoader, batch_size=4)\n{look}\n")
    assert ("create_loader" in text) is is_rewritten
    assert [one.why for one in findings if one.status is FindingStatus.REPORT] == (
        [] if is_rewritten else ["used-as-value"]
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        # Names: of the loader, of its dataset, of the functions around.
        ("train_loader = DataLoader(d, shuffle=s)", "train_loader = F.create_training_loader(d, shuffle=s)"),
        ("self.valLoader = DataLoader(d)", "self.valLoader = F.create_validation_loader(d)"),
        ("test_loader = DataLoader(d, shuffle=True)", "test_loader = F.create_test_loader(d, shuffle=True)"),
        ("x = DataLoader(sets['val'])", "x = F.create_validation_loader(sets['val'])"),
        ("x = DataLoader(self.eval_set)", "x = F.create_validation_loader(self.eval_set)"),
        (
            "train, dev = DataLoader(a, 4, True), DataLoader(b, 4)",
            "train, dev = F.create_training_loader(a, 4, shuffle=True), F.create_validation_loader(b, 4)",
        ),
        ("def val_dataloader(): return DataLoader(d)", "def val_dataloader(): return F.create_validation_loader(d)"),
        ("def get_val_loader(): x = DataLoader(d)", "def get_val_loader(): x = F.create_validation_loader(d)"),
        ("def Greedy_Decode_Eval(): x = DataLoader(d)", "def Greedy_Decode_Eval(): x = F.create_validation_loader(d)"),
        ("def test(): x = DataLoader(d, 1)", "def test(): x = F.create_test_loader(d, 1)"),
        ("def train(): x = DataLoader(d, 4, True)", "def train(): x = F.create_training_loader(d, 4, shuffle=True)"),
        ("x = {'valid': DataLoader(d)}", "x = {'valid': F.create_validation_loader(d)}"),
        ("test = DataLoader(Digits(train=False))", "test = F.create_test_loader(Digits(train=False))"),
        ("x = DataLoader(Digits(split='val'))", "x = F.create_validation_loader(Digits(split='val'))"),
        # Not plain.
        ("x = DataLoader(d, shuffle=True)", "x = F.create_loader(d, shuffle=True)"),
        ("x = DataLoader(d)", "x = F.create_loader(d)"),
        ("values = DataLoader(d)", "values = F.create_loader(d)"),
        ("def train(): x = DataLoader(d)", "def train(): x = F.create_loader(d)"),
        (
            "def Greedy_Decode_Eval(): x = DataLoader(d, 4, True)",
            "def Greedy_Decode_Eval(): x = F.create_loader(d, 4, True)",
        ),
        ("def cross_validate(): x = DataLoader(d)", "def cross_validate(): x = F.create_loader(d)"),
        ("def crossVal(): x = DataLoader(d)", "def crossVal(): x = F.create_loader(d)"),
        ("def kfold_validation(): x = DataLoader(d)", "def kfold_validation(): x = F.create_loader(d)"),
        ("def fit_and_validate(): x = DataLoader(d)", "def fit_and_validate(): x = F.create_loader(d)"),
        (
            "def evaluate():\n    for x in DataLoader(d): x.backward()",
            "def evaluate():\n    for x in F.create_loader(d): x.backward()",
        ),
        (
            "def inner_test(): x = DataLoader(d), loss.backward",
            "def inner_test(): x = F.create_loader(d), loss.backward",
        ),
        ("train_val = DataLoader(d, shuffle=True)", "train_val = F.create_loader(d, shuffle=True)"),
        ("accuracy_train = f(DataLoader(test))", "accuracy_train = f(F.create_loader(test))"),
        ("x = DataLoader(Digits(train=False), 4, True)", "x = F.create_loader(Digits(train=False), 4, True)"),
        ("train = DataLoader(Digits(train=False), 4, True)", "train = F.create_loader(Digits(train=False), 4, True)"),
        # `drop_last` keeps its meaning, which the method for validation refuses.
        ("val_loader = DataLoader(d, drop_last=True)", "val_loader = F.create_loader(d, drop_last=True)"),
        ("val_loader = DataLoader(d, drop_last=None)", "val_loader = F.create_loader(d, drop_last=None)"),
        ("val_loader = DataLoader(d, drop_last=False)", "val_loader = F.create_validation_loader(d, drop_last=False)"),
        # A training loader shuffles by itself, but not beside samplers.
        ("train_loader = DataLoader(d, 4)", "train_loader = F.create_loader(d, 4)"),
        ("train_loader = DataLoader(d, 4, False)", "train_loader = F.create_loader(d, 4, False)"),
        # Only a call of a sampler class of PyTorch certainly returns a sampler. Any other call may return None.
        ("train_loader = DataLoader(d, sampler=S(d))", "train_loader = F.create_loader(d, sampler=S(d))"),
        (
            "train_loader = DataLoader(d, batch_sampler=c.S(d))",
            "train_loader = F.create_loader(d, batch_sampler=c.S(d))",
        ),
        (
            "def f(d):\n    from torch.utils.data import RandomSampler as S\n"
            "    train_loader = DataLoader(d, sampler=S(d))",
            "def f(d):\n    from torch.utils.data import RandomSampler as S\n"
            "    train_loader = F.create_training_loader(d, sampler=S(d))",
        ),
        ("train_loader = DataLoader(d, sampler=s)", "train_loader = F.create_loader(d, sampler=s)"),
        (
            "def f(d):\n    s = S(d)\n    train_loader = DataLoader(d, sampler=s)",
            "def f(d):\n    s = S(d)\n    train_loader = F.create_loader(d, sampler=s)",
        ),
        (
            "def f(d):\n    import torch.utils.data as t\n    s = t.RandomSampler(d)\n"
            "    train_loader = DataLoader(d, sampler=s)",
            "def f(d):\n    import torch.utils.data as t\n    s = t.RandomSampler(d)\n"
            "    train_loader = F.create_training_loader(d, sampler=s)",
        ),
        (
            "def f(d):\n    s = S(d)\n    if d: s = None\n    train_loader = DataLoader(d, sampler=s)",
            "def f(d):\n    s = S(d)\n    if d: s = None\n    train_loader = F.create_loader(d, sampler=s)",
        ),
        (
            "def f(d, s):\n    if d: s = S(d)\n    train_loader = DataLoader(d, sampler=s)",
            "def f(d, s):\n    if d: s = S(d)\n    train_loader = F.create_loader(d, sampler=s)",
        ),
        ("train_loader = DataLoader(d, batch_sampler=s)", "train_loader = F.create_loader(d, batch_sampler=s)"),
        ("val_loader = DataLoader(d, batch_sampler=s)", "val_loader = F.create_validation_loader(d, batch_sampler=s)"),
    ],
)
def test_the_method_says_what_the_loader_is_for_only_where_that_is_clear(before: str, after: str) -> None:
    text, _ = migrate(f"{IMPORT}{before}\n")
    written = "".join(text.partition("\n")[2].split())  # wherever the line is broken
    assert written == "".join(after.replace("F.", "OptimalDataLoaderFactory.").split())


@pytest.mark.parametrize(
    ("other", "is_plain"),
    [
        ("test = DataLoader(c)", True),
        ("other = DataLoader(c)", False),
        ("train_in_order = DataLoader(c, 4)", False),
        ("test = DataLoader(c, **options)", False),
        ("make = partial(DataLoader, batch_size=4)", False),
        ("kinds = [DataLoader]", True),
    ],
)
def test_all_loaders_of_a_file_are_built_in_one_style(other: str, is_plain: bool) -> None:
    text, _ = migrate(
        f"from functools import partial\n{IMPORT}train = DataLoader(a, 4, True)\n\n\ndef f():\n    {other}\n"
    )
    assert ("create_training_loader(a, 4, shuffle=True)" in text) is is_plain
    assert ("create_loader(a, 4, True)" in text) is not is_plain


def test_a_loader_beside_those_of_an_earlier_migration_is_built_in_their_style() -> None:
    earlier = "from chirpid_patch import OptimalDataLoaderFactory\nx = OptimalDataLoaderFactory.create_loader(d)\n"
    text, _ = migrate(f"{IMPORT}{earlier}train = DataLoader(a, 4, True)\n")
    assert "train = OptimalDataLoaderFactory.create_loader(a, 4, True)" in text


@pytest.mark.parametrize(
    "pinned",
    [
        "True",
        "False",
        "None",
        "torch.cuda.is_available()",
        "device.type == 'cuda'",
        "True if device.type == 'cuda' else False",
        "bool(torch.cuda.device_count())",
        "args.pin",
        "config['pin']",
        "pin",
    ],
)
@pytest.mark.parametrize("method", ["training", "validation"])
def test_a_call_pins_as_it_said(pinned: str, method: str) -> None:
    head = f"import torch\n{IMPORT}def f(d, args, config, device):\n    pin = torch.cuda.is_available()\n    return "
    dataset = "train_set" if method == "training" else "val_set"
    after, _ = migrate(f"{head}DataLoader({dataset}, shuffle={method == 'training'}, pin_memory={pinned})\n")
    assert f".create_{method}_loader(" in after and f"pin_memory={pinned}" in after
    assert "pin = torch.cuda.is_available()" in after


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("def f(d, config):\n    n = config.get('n', 3)\n    return LOADER", True),
        ("def f(d, config):\n    n = 3 if config.get('n', 3) else 4\n    return LOADER", True),
        ("def f(d, config):\n    with d:\n        if config.get('n', 3) or d:\n            return LOADER", True),
        ("def f(d, config):\n    return LOADER", False),
        ("def f(d, config):\n    n = config.get('train', 'n')\n    return LOADER", False),
        ("def f(d, config=None):\n    if config:\n        n = config.get('n', 3)\n    return LOADER", False),
        ("def f(d, config=None):\n    n = config.get('n', 3) if config else 3\n    return LOADER", False),
        ("def f(d, config=None):\n    n = d or config.get('n', 3)\n    return LOADER", False),
        ("def f(d, config=None):\n    n = lambda: config.get('n', 3)\n    return LOADER", False),
        ("def f(d, config=None):\n    x = LOADER\n    return x, config.get('n', 3)", False),
        ("def f(d, config):\n    n = config.get('n', 3)\n    config = None\n    return LOADER", False),
        ("n = config.get('n', 3)\nx = LOADER", False),
        ("def f(d, config):\n    n = config.get('n')\n    return LOADER", False),
        ("def f(d, config):\n    return config.get('n', 3) if config else LOADER", False),
        ("def f(d, config):\n    return [config.get('n', 3) for batch in LOADER]", False),
        ("def f(d, config):\n    return (config.get('n', 3) for batch in LOADER)", False),
        ("def f(d, config):\n    n = config.get('n', 3)\n    return lambda: LOADER", False),
        ("def f(d, config):\n    n = config.get('n', 3)\n    del config\n    return LOADER", False),
        ("def f(d, config):\n    n = config.get('n', 3)\n    config.close()\n    return LOADER", False),
        ("def f(d, config):\n    n = config.get('n', 3)\n    config.update(d)\n    return LOADER", True),
        ("def f(d, config):\n    with d, config.get('n', 3):\n        d = 4\n    return LOADER", False),
        ("def f(d, config):\n    with config.get('n', 3), d:\n        d = 4\n    return LOADER", True),
        ("def f(d, config):\n    n: int = config.get('n', 3)\n    return LOADER", True),
        ("config = {}\ndef f(d):\n    n = config.get('n', 3)\n    return LOADER", False),
        ("import config\ndef f(d):\n    n = config.get('n', 3)\n    return LOADER", False),
        ("def f(d, config):\n    n = config.get('n', 3)\n    return [LOADER for d in config]", True),
        ("def f(d, config):\n    n = config.get('n', 3)\n    return [LOADER for config in d]", False),
        ("def f(d, config):\n    n = config.get('n', 3)\n    return lambda config: LOADER", False),
        (
            "def f(d, config):\n    n = config.get('n', 3)\n    g = lambda: LOADER\n    config = 3\n    return g()",
            False,
        ),
        ("def f(d, config):\n    n = config.get('n', 3)\n    for e in d:\n        LOADER\n        config = e", False),
        ("def f(d, config):\n    n = config.get('n', 3)\n    config, e = d\n    LOADER", False),
        ("def f(d, config):\n    n = max(3, int(config.get('n', 3)) + 1)\n    return LOADER", True),
        (
            "def f(d, config):\n    if d:\n        d\n    elif config.get('n', 3):\n        d\n    return LOADER",
            False,
        ),
        (
            "def f(d, config):\n    match d:\n        case 3 if config.get('n', 3):\n            d = 4\n    LOADER",
            False,
        ),
        ("def f(d, config):\n    assert config.get('n', 3), d\n    return LOADER", False),
        ("def f(d, config):\n    assert d, config.get('n', 3)\n    return LOADER", False),
        ("def f(d, config):\n    n = 0 < config.get('n', 3) < d\n    return LOADER", True),
        ("def f(d, config):\n    n = 0 < d < config.get('n', 3)\n    return LOADER", False),
        ("def f(d, config):\n    config = config or {}\n    config.get('n', 3)\n    return LOADER", True),
        ("def f(d, config):\n    config = config.get('n', 3)\n    return LOADER", False),
        ("def f(d, config):\n    if config := config.get('n', 3):\n        return LOADER", False),
        ("def f(d, config):\n    for config in config.get('n', 3):\n        return LOADER", False),
        ("def f(d, config):\n    with config.get('n', 3) as config:\n        return LOADER", False),
        ("def f(d, configs):\n    for config in configs:\n        n = config.get('n', 3)\n        LOADER", True),
        (
            "def f(d, config):\n    n = config.get('n', 3)\n    match d:\n        case config:\n            LOADER",
            False,
        ),
        ("def f(d, config):\n    n = config.get('n', 3)\n    import config\n    return LOADER", False),
        (
            "def f(d, config):\n    def g():\n        nonlocal config\n        config = 3\n"
            "    n = config.get('n', 3)\n    g()\n    return LOADER",
            False,
        ),
    ],
)
def test_a_configuration_is_read_where_it_surely_was_read_before(text: str, read: bool) -> None:
    after, _ = migrate(f"{IMPORT}{text.replace('LOADER', 'DataLoader(d)')}\n")
    assert ("optimize=config.get('optimize_dataloaders', True)" in after) is read


def test_settings_are_read_with_the_quotes_of_the_file() -> None:
    after, _ = migrate(f'{IMPORT}def f(d, config):\n    n = config.get("n", 3)\n    return DataLoader(d)\n')
    assert 'config.get("optimize_dataloaders", True)' in after and "'" not in after


def test_what_is_read_from_it_has_lines_of_its_own_in_a_call_of_several_lines() -> None:
    text = (
        "def f(d, config):\n    n = config.get('n', 3)\n"
        "    training_loader = DataLoader(d, batch_size=config['batch_size'],\n"
        "                                 shuffle=True, num_workers=config['num_workers'])\n"
    )
    after, _ = migrate(f"{IMPORT}{text}")
    assert after.endswith(
        "create_training_loader(\n        d,\n        batch_size=config['batch_size'],\n"
        "        shuffle=True,\n        num_workers=config['num_workers'],\n"
        "        optimize=config.get('optimize_dataloaders', True),\n"
        "        benchmark=config.get('benchmark_performance', False),\n    )\n"
    )


@pytest.mark.parametrize(
    ("other", "read"),
    [
        ("class Config:\n    def get(self, key): ...", False),
        ("class Config:\n    def look_up(self, key): ...\n    get = look_up", False),
        ("class Config:\n    get: Callable = look_up", False),
        ("class Config:\n    def __init__(self):\n        self.get = self.look_up", False),
        ("config = SimpleNamespace(get=look_up)", False),
        ("Config = type('Config', (), {'get': look_up})", False),
        ("setattr(config, 'get', look_up)", False),
        ("class Config:\n    get: 'Callable' = look_up", False),
        ("class Config:\n    def __init__(self):\n        self.get, self.put = look_up, None", False),
        ("vars(config)['get'] = look_up", False),
        ("class Config:\n    from readers import look_up as get", False),
        ("class Config:\n    class get: ...", False),
        ("Config = namedtuple('Config', 'put get')", False),
        ("config = Mock(**{'get.side_effect': look_up})", False),
        ("from collections.abc import Mapping\nConfig = type('Config', (Mapping,), methods)", False),
        ("config.get.return_value = 2", False),
        ("config.get.side_effect = look_up", False),
        ("total = config.get('n', 3).value", True),
        ("class Config:\n    def __getattr__(self, name): ...", False),
        ("class Config:\n    def __getattribute__(self, name: str) -> object: ...", False),
        ("class Config:\n    __getattr__ = look_up", False),
        ("from collections.abc import Mapping\nclass Config(Mapping): ...", False),
        ("from collections.abc import Mapping as Base\nclass Config(Base): ...", False),
        ("import collections\nclass Config(Base, collections.UserDict[str, int]): ...", False),
        ("class Config(Generic[Key, list[int]], dict): ...", False),
        ("class Config(\n    Base,\n    dict[str, Any],\n): ...", False),
        ("def __getattr__(name): ...", True),
        ("class Model:\n    def get_batch(self, target=1):\n        budget = config.get('n', 3) == target", True),
        ("class Samples(Dataset[dict[str, Tensor]]):\n    def read(self) -> dict[str, int]: ...", True),
        ("class DictConfig(Base): ...", True),
    ],
)
def test_a_project_may_have_a_get_of_its_own_that_refuses_a_key(other: str, read: bool) -> None:
    text = f"{IMPORT}def f(d, config):\n    n = config.get('n', 3)\n    return DataLoader(d)\n"
    after, _ = migrate(text, other=other)
    assert ("optimize=config.get('optimize_dataloaders', True)" in after) is read


@pytest.mark.parametrize(
    ("init", "first", "read"),
    [
        ("self.config = config\n        self.n = config.get('n', 3)", "", False),
        ("self.config = config\n        self.n = self.config.get('n', 3)", "", False),
        ("self.config = config\n        if config:\n            self.n = self.config.get('n', 3)", "", False),
        ("self.config = config", "self.config.get('n', 3)", True),
        ("self.config = config\n        self.n = self.config.get('n', 3)", "self.config = None", False),
        ("self.config = config\n        self.n = self.config.get('n', 3)", "self.config, e = d", False),
        ("pass\n\n    @property\n    def config(self):\n        pass", "self.config.get('n', 3)", False),
    ],
)
def test_a_configuration_is_read_in_the_same_method(init: str, first: str, read: bool) -> None:
    after, _ = migrate(
        f"{IMPORT}class Trainer:\n    def __init__(self, config):\n        {init}\n\n"
        f"    def loader(self, d):\n        {first or 'pass'}\n        return DataLoader(d)\n"
    )
    assert ("optimize=self.config.get('optimize_dataloaders', True)" in after) is read


@pytest.mark.parametrize(
    ("other", "read"),
    [
        ("class Child: ...\nargs.config = None", False),
        ("def reset(trainer):\n    trainer.__init__(None)", False),
        ("def reset(trainer):\n    delattr(trainer, 'config')", False),
        ("patch.object(Trainer, '__init__', start)", False),
        ("Samples = type('Samples', (), {'__init__': start})", True),
        ("def reset(trainer, name):\n    setattr(trainer, name, None)", False),
        ("class Child(Base):\n    def __init__(self):\n        super().__init__()", True),
        ("class Child(Trainer):\n    def __init__(self, path):\n        self.config = path", False),
        ("class Child(Other):\n    def __init__(self, path):\n        self.config = path", True),
        ("print(trainer.config)", True),
    ],
)
def test_other_code_may_replace_a_configuration_between_two_reads(other: str, read: bool) -> None:
    text = (
        f"{IMPORT}class Trainer:\n    def __init__(self, config):\n        self.config = config\n"
        "\n    def loader(self, d):\n        n = self.config.get('n', 3)\n        return DataLoader(d)\n"
    )
    after, _ = migrate(text, other=other)
    assert ("optimize=self.config.get('optimize_dataloaders', True)" in after) is read


def test_a_class_that_is_only_called_later_is_the_factorys_method() -> None:
    after, _ = migrate(
        """
        from torch.utils.data import DataLoader
        from fast import FastLoader

        def one(d, fast):
            loader_cls = FastLoader if fast else DataLoader
            return loader_cls(d, 4)

        def two(d, loader_class=DataLoader):
            return loader_class(d, batch_size=4)

        class Trainer:
            def __init__(self):
                self.loader = DataLoader

            def three(self, d):
                return self.loader(d)
        """
    )
    assert "FastLoader if fast else OptimalDataLoaderFactory.create_loader\n" in after
    assert "loader_class=OptimalDataLoaderFactory.create_loader)" in after
    assert "    self.loader = OptimalDataLoaderFactory.create_loader\n" in after


@pytest.mark.parametrize(
    "use",
    [
        "loader_cls = DataLoader\nloader_cls(d)\nisinstance(x, loader_cls)",
        "self.loader_cls = DataLoader",
        "class Trainer:\n    loader = DataLoader\n    def three(self, d):\n        return self.loader(d)",
        "return DataLoader",
        "register('torch', DataLoader)",
        "loader_cls = DataLoader[int]\nloader_cls(d)",
        "build = functools.partial(DataLoader[int], batch_size=3)",
        "def build(d, loader_cls=DataLoader[int]):\n    return loader_cls(d)",
        "loader_cls = Fast if d else DataLoader[int]\nloader_cls(d)",
    ],
)
def test_a_class_that_goes_elsewhere_is_reported(use: str) -> None:
    text = f"import functools\n{IMPORT}def f(self):\n" + textwrap.indent(use, "    ") + "\n"
    after, findings = migrate(text)
    assert after == text and reasons(findings) == ["used-as-value"]


@pytest.mark.parametrize(
    "use",
    [
        "def f(a: DataLoader, b: 'DataLoader' = None) -> list[DataLoader]: ...",
        "isinstance(x, (DataLoader, list))",
        "Loaders = Union[DataLoader, List[DataLoader]]",
        "Loaders = DataLoader | None",
        "type(x) is DataLoader",
        "x: DataLoader",
        "cast(DataLoader, x)",
        "inspect.signature(DataLoader)",
        "DataLoader.__init__.__doc__",
        "DataLoader",
        "f(DataLoader=3)",
    ],
)
def test_a_mention_is_no_site(use: str) -> None:
    text = f"import inspect\nfrom typing import Union, List, cast\n{IMPORT}{use}\n"
    assert migrate(text) == (text, [])


def test_a_subclass_is_reported_once() -> None:
    after, findings = migrate(
        f"{IMPORT}class Mine(DataLoader):\n    def __init__(self, d):\n        super().__init__(d)\n"
    )
    assert "class Mine(DataLoader):" in after and reasons(findings) == ["subclass"]


def test_what_is_built_by_the_factory_is_counted_as_fine() -> None:
    text = (
        "from chirpid_patch import OptimalDataLoaderFactory as F\nx = F.create_loader(d)\ny = F.get_optimal_config(3)\n"
    )
    after, findings = migrate(text)
    assert after == text and [one.status for one in findings] == [FindingStatus.FINE]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            """
            def f(d):
                from torch.utils.data import DataLoader
                yield DataLoader(d)
                yield DataLoader(d)
            """,
            """
            def f(d):
                from chirpid_patch import OptimalDataLoaderFactory
                yield OptimalDataLoaderFactory.create_loader(d)
                yield OptimalDataLoaderFactory.create_loader(d)
            """,
        ),
        (
            """
            import os
            try:
                import torch
                from torch.utils.data import DataLoader
            except ImportError:
                torch = None
            x = DataLoader(d)
            """,
            """
            import os
            try:
                import torch
                from chirpid_patch import OptimalDataLoaderFactory
            except ImportError:
                torch = None
            x = OptimalDataLoaderFactory.create_loader(d)
            """,
        ),
        (
            """
            if available(): from torch.utils.data import DataLoader
            x = DataLoader(d)
            """,
            """
            if available(): from torch.utils.data import DataLoader; from chirpid_patch import OptimalDataLoaderFactory
            x = OptimalDataLoaderFactory.create_loader(d)
            """,
        ),
        (
            """
            import os
            os.environ["OMP_NUM_THREADS"] = "1"
            import sys
            sys.path.insert(0, "..")
            from torch.utils.data import DataLoader
            import here
            x = DataLoader(d)
            """,
            """
            import os
            os.environ["OMP_NUM_THREADS"] = "1"
            import sys
            sys.path.insert(0, "..")
            from chirpid_patch import OptimalDataLoaderFactory
            import here
            x = OptimalDataLoaderFactory.create_loader(d)
            """,
        ),
        (
            "def f(d):\n    import torch.utils.data as t; x = t.DataLoader(d); return x\n",
            """\
            def f(d):
                import torch.utils.data as t; from chirpid_patch import OptimalDataLoaderFactory; x = OptimalDataLoaderFactory.create_loader(
                    d
                ); return x
            """,  # noqa: E501
        ),
    ],
)
def test_the_runtime_is_imported_where_torch_is(before: str, after: str) -> None:
    text, _ = migrate(before)
    assert text.rstrip() == textwrap.dedent(after).rstrip()


@pytest.mark.parametrize(
    ("test", "replaced"),
    [
        ("with patch('pkg.a.DataLoader') as loader: ...", True),
        ('@mock.patch("a.DataLoader", autospec=True)\ndef test(): ...', True),
        ("monkeypatch.setattr(pkg.a, 'DataLoader', Fake)", True),
        ("monkeypatch.setattr('pkg.a.DataLoader', Fake)", True),
        ("patch.object(a, 'DataLoader')", True),
        ("import torch.utils.data as tud\ntud.DataLoader = Traced", True),
        ("def install(module):\n    module.DataLoader, module.Dataset = Traced, Data", True),
        ("vars(a)['DataLoader'] = Traced", True),
        ("setattr(a, 'DataLoader', Traced)", True),
        ("patch('torch.utils.data.DataLoader.__iter__', Fake.__iter__)", True),
        ("from torch.utils.data import DataLoader as D\npatch.object(D, '__iter__', Fake.__iter__)", True),
        ("torch.utils.data.DataLoader.__iter__ = Fake.__iter__", True),
        ("DataLoader.__init__.__defaults__ = (4, True)", True),
        ("make = tud.DataLoader.__init__\nmake.__kwdefaults__['prefetch_factor'] = 4", True),
        ("DataLoader.__len__.__code__ = own.__code__", True),
        ("names = DataLoader.__init__.__code__.co_varnames == make.__code__.co_varnames", False),
        ("f.__defaults__ = ()", False),
        ("patch.object(Loader, '__iter__', DataLoader.__iter__)", False),
        ("patch('torch.utils.data.DataLoader')", False),
        ("patch('pkg.b.DataLoader')", False),
        ("log('a.DataLoader')", False),
        ("setattr(x, 'y', 1)\nnitpick_ignore = [('py:class', 'pkg.a.DataLoader')]", False),
        ("PATHS = ['pkg.a.DataLoader']\nfor path in PATHS: patch(path)", True),
        ("raises(TypeError, match='loader should be a.DataLoader'); setattr(x, 'y', 1)", False),
        ("self.DataLoader = DataLoader if a.DataLoader == DataLoader else None", False),
        ("def fit(loader: torch.utils.data.DataLoader = None, *, é=1, more: data.DataLoader = None): ...", False),
        ("class A:\n    loader: torch.utils.data.DataLoader = field(init=False)", False),
        ("def fit(é: tud.DataLoader = None): tud.DataLoader = Traced", True),
        ("if is_test: tud.DataLoader = Traced", True),
    ],
)
def test_what_other_code_replaces_by_name_stays(test: str, replaced: bool) -> None:
    text = f"{IMPORT}x = DataLoader(d)\n"
    after, findings = migrate(text, test_a=test)
    assert (after == text) is replaced and reasons(findings) == ["replaced"] * replaced


@pytest.mark.parametrize(
    ("given", "replaced"),
    [
        ("install(a, 'DataLoader', Fake)", True),
        ("install_all(a, DataLoader=Fake)", True),
        ("NAMES = [('a', 'DataLoader')]\nfor where, name in NAMES: install(where, name, Fake)", True),
        ("nitpick_ignore = [('py:class', 'DataLoader')]", False),
        ("# install(a, 'DataLoader', Fake)", False),
    ],
)
def test_a_name_that_a_helper_is_given_stays(given: str, replaced: bool) -> None:
    text = f"{IMPORT}x = DataLoader(d)\n"
    helper = "def install(where, name, value):\n    setattr(where, name, value)\n"
    after, findings = migrate(text, helping=helper, conf=given)
    assert (after == text) is replaced and reasons(findings) == ["replaced"] * replaced


@pytest.mark.parametrize(
    ("test", "replaced"),
    [
        ("import a\na.tud = Namespace(DataLoader=Fake)", True),
        ("import pkg.a as trained\ntrained.tud, x = fake, 1", True),
        ("import importlib\nimportlib.import_module('a').tud = fake", True),
        ("import a\nsetattr(a.tud, 'Data' + 'Loader', Fake)", True),
        ("for name in ('empty', 'zeros'): setattr(torch, name, Fake)", False),
        ("import b\nb.tud = fake", False),
        ("def f(tensor):\n    tensor.tud = 1", False),
    ],
)
def test_a_module_that_other_code_replaces_stays(test: str, replaced: bool) -> None:
    text = "import torch.utils.data as tud\nx = tud.DataLoader(d)\n"
    after, findings = migrate(text, test_a=test)
    assert (after == text) is replaced and reasons(findings) == ["replaced"] * replaced


@pytest.mark.parametrize(
    ("reload", "replaced"),
    [
        ("import importlib, torch.utils.data.dataloader\nimportlib.reload(torch.utils.data.dataloader)", True),
        ("from importlib import reload\nfrom torch.utils.data import dataloader\nreload(dataloader)", True),
        ("import importlib, a\nimportlib.reload(a)", False),
    ],
)
def test_what_is_defined_again_stays_where_it_is_asked_for_again(reload: str, replaced: bool) -> None:
    text = "import torch.utils.data.dataloader\nx = torch.utils.data.dataloader.DataLoader(d)\n"
    after, findings = migrate(text, helping=reload)
    assert (after == text) is replaced and reasons(findings) == ["replaced"] * replaced


def test_what_a_test_replaces_in_pytorch_stays_where_it_is_asked_for_again() -> None:
    text = "import torch\nx = torch.utils.data.DataLoader(d)\n"
    after, findings = migrate(text, test_a="patch('torch.utils.data.DataLoader')")
    assert after == text and reasons(findings) == ["replaced"]


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("from chirpid_patch import create_loader\nx = create_loader(d)\n", 1),
        ("import chirpid_patch\nx = chirpid_patch.create_training_loader(d)\n", 1),
        ("def create_loader(d):\n    return d\n\n\nx = create_loader(d)\n", 0),
    ],
)
def test_the_runtimes_functions_are_loaders_that_are_migrated(text: str, made: int) -> None:
    after, findings = migrate(text)
    assert after == text
    assert [one.message for one in findings if one.status is FindingStatus.FINE] == [
        "the factory already builds this loader"
    ] * made

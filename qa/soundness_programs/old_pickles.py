"""Programs that load pickles from an earlier version of their code, and programs that pickle objects for workers."""

from __future__ import annotations

import random
import re

_MADE = re.compile(r"^    made = ((\w+)\(.*\))$", re.MULTILINE)
#: Changes of an object before it is pickled: attributes that an earlier version lacks, or that are set.
_EARLIER = (
    "pass",
    "pass",
    "tried(lambda: list(DataLoader(made, batch_size=2)))",
    "made.extra = 1",
    "vars(made).pop(sorted(vars(made))[-1], None)",
    "vars(made).pop(sorted(vars(made))[0], None)",
    "made = emptied(made, vars(made))",
    "made = emptied(made, {})",
    "made = copy.deepcopy(made)",
)
#: Object that contains the pickled object, and expression that reads the pickled object from it.
_HELD = (
    ("made", ""),
    ("made", ""),
    ("[made, made]", "[1]"),
    ("{'data': made}", "['data']"),
    ("DataLoader(made, batch_size=2)", ".dataset"),
    ("Subset(made, [0])", ".dataset"),
    ("ConcatDataset([made])", ".datasets[0]"),
    ("Plus(made)", ".n"),
)
_SUBCLASS = (
    "{}",
    "{'__setstate__': lambda self, state: self.__dict__.update(state)}",
    "{'__getstate__': lambda self: dict(self.__dict__)}",
    "{'__reduce__': lambda self: (emptied, (self, dict(self.__dict__)))}",
    "{'extra': 3}",
)


def unpickled(rng: random.Random, text: str) -> str:
    """Return ``text`` with the first object of its ``main`` loaded from a pickle of an earlier run.

    In the earlier run, the function ``saved`` of the program makes the pickle. The code that runs the program assigns
    the pickle to the variable ``SAVED``.
    """
    found = _MADE.search(text)
    assert found is not None
    made, kind = found[1], found[2]
    dynamic = ""
    if rng.random() < 0.25:
        dynamic = f"\n\nEarlier = type('Earlier', ({kind},), {rng.choice(_SUBCLASS)})\nEarlier.__module__ = __name__\n"
        made = f"Earlier{made.removeprefix(kind)}"
    held, place = rng.choice(_HELD)
    saving = f"""

SAVED = b""


def emptied(one, state):
    made = object.__new__(type(one))
    vars(made).update(state)
    return made


def saved():
    made = {made}
    {rng.choice(_EARLIER)}
    return pickle.dumps({held}, {rng.randrange(2, 6)})
"""
    loaded = f"    made = pickle.loads(SAVED){place}"
    begins, ends = text[: found.start()], text[found.end() :]
    head, main, rest = begins.rpartition("\n\ndef main():\n")
    return f"{head}{dynamic}{saving}{main}{rest}{loaded}{ends}"


def with_workers(rng: random.Random, text: str) -> str:
    """Return ``text`` with worker processes in the loaders of its ``main``. The program records the kinds of errors."""
    workers = rng.choice(("1", "1", "2", "1, persistent_workers=True", "1, prefetch_factor=1"))
    begins, main, ends = text.partition("\n\ndef main():\n")
    return f"{begins}{_TRIED}{main}{_loading(ends, workers)}"


def _loading(text: str, workers: str) -> str:
    return re.sub(r"(DataLoader\((?:[^()]|\([^()]*\))*?)\)", rf"\1, num_workers={workers})", text)


#: Errors of pickling count as equal for all start methods.
_TRIED = """

def tried(call):
    try:
        return call()
    except Exception as error:
        unsent = isinstance(error, pickle.PicklingError) or "pickle" in str(error) or "local object" in str(error)
        died = "exited unexpectedly" in str(error)
        return "cannot be pickled" if unsent else "a worker died" if died else type(error).__name__
"""

"""Whether a class draws the same masks or the same noise as the shipped transform, read from its source.

Both checks know one grammar of statements each, and refuse whatever else stands there. Names may be any, sizes may be
kept in names or not, the gate may return early or enclose the work, and a mask may be a method of its own.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

MASK_PARAMETERS = (
    "time_mask_param",
    "freq_mask_param",
    "num_time_masks",
    "num_freq_masks",
    "mask_value",
    "p",
)
#: How often an axis is masked, how wide at most, and where it is in the shape.
_AXES = {"num_time_masks": ("time_mask_param", -1), "num_freq_masks": ("freq_mask_param", -2)}
_EARLY = ("random.random() > self.p", "random.random() >= self.p")
_ENCLOSING = ("random.random() < self.p", "random.random() <= self.p")


class _OtherwiseError(Exception):
    """The class does something that the grammar does not know; the message names it."""


def masks_like_spec_augment(class_source: str) -> str | None:
    """``None`` when the class masks as the shipped ``SpecAugment`` does, else the reason why that is not certain.

    With probability 1 - p the sample is returned; else a clone of it, in which so many stretches of each axis are
    overwritten with ``mask_value``, of widths uniform in 0..min(parameter, size) and starts uniform where they fit.
    """
    try:
        _Masks(_methods(class_source)).check()
    except _OtherwiseError as reason:
        return str(reason)
    return None


def adds_noise_like_gaussian_noise(class_source: str) -> str | None:
    """``None`` when the class adds noise as the shipped ``GaussianNoise`` does, else the reason why not.

    With probability 1 - p the sample is returned; else ``clamp(x + randn_like(x) * std, 0, 1)``.
    """
    try:
        _check_noise(_methods(class_source)["forward"])
    except _OtherwiseError as reason:
        return str(reason)
    return None


def _methods(class_source: str) -> dict[str, ast.FunctionDef]:
    tree = ast.parse(class_source).body[0]
    assert isinstance(tree, ast.ClassDef)
    found: dict[str, ast.FunctionDef] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name not in found:
            found[node.name] = node
        elif not _is_text(node):
            raise _OtherwiseError(f"its body has `{_line(node)}`")
    special = {"__call__", "__getattr__", "__getattribute__", "__setattr__"} & found.keys()
    if special:
        raise _OtherwiseError(f"it has a `{min(special)}`")
    return found


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _line(node: ast.AST) -> str:
    return ast.unparse(node).splitlines()[0]


def _statements(function: ast.FunctionDef) -> tuple[str, list[ast.stmt]]:
    """The name of the only parameter besides ``self``, and the statements but for the docstring."""
    given = function.args
    names = [one.arg for one in given.args]
    others = given.posonlyargs or given.kwonlyargs or given.vararg or given.kwarg or given.defaults
    if len(names) != 2 or names[0] != "self" or others or function.decorator_list:
        raise _OtherwiseError(f"`{function.name}` does not take one sample")
    body = function.body[1:] if _is_text(function.body[0]) else function.body
    return names[1], list(body)


def _work(x: str, body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """The statements that one gate ``random.random()`` against ``p`` lets run, their ``return`` the last."""
    gate = body[0] if body else None
    if not isinstance(gate, ast.If) or ast.unparse(gate.test) not in (*_EARLY, *_ENCLOSING):
        raise _OtherwiseError("it is not gated by one `random.random() > self.p`")
    rest = [*gate.orelse, *body[1:]]
    work, left = (rest, list(gate.body)) if ast.unparse(gate.test) in _EARLY else (list(gate.body), rest)
    if not work or [ast.unparse(one) for one in left] != [f"return {x}"]:
        raise _OtherwiseError("its gate does not return the sample as it is")
    return work


def _pairs(node: ast.stmt) -> list[tuple[ast.expr, ast.expr]]:
    """Targets and values of an assignment, a tuple of as many values taken apart."""
    if not isinstance(node, ast.Assign) or len(node.targets) != 1:
        raise _OtherwiseError(f"it does `{_line(node)}`")
    target, value = node.targets[0], node.value
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        return list(zip(target.elts, value.elts, strict=True))
    return [(target, value)]


class _Masks:
    """The grammar of masks."""

    def __init__(self, methods: Mapping[str, ast.FunctionDef]) -> None:
        self._methods = methods

    def check(self) -> None:
        x, body = _statements(self._methods["forward"])
        work = _work(x, body)
        if len(work) < 2 or ast.unparse(work[0]) != f"{x} = {x}.clone()":
            raise _OtherwiseError("it does not mask a clone")
        if ast.unparse(work[-1]) != f"return {x}":
            raise _OtherwiseError("it does not return the clone")
        sizes: dict[str, int] = {}
        masked: list[str] = []
        for statement in work[1:-1]:
            if isinstance(statement, ast.For):
                masked.append(self._loop(statement, x, sizes))
            else:
                self._size(statement, x, sizes)
        if sorted(masked) != sorted(_AXES):
            raise _OtherwiseError("it does not mask time and frequency once each")

    def _size(self, statement: ast.stmt, x: str, sizes: dict[str, int]) -> None:
        """Sizes of the last two axes kept in names, each of which means one size throughout."""
        for target, value in _pairs(statement):
            named: list[tuple[ast.expr, int | None]] = [(target, _axis(value, x, {}))]
            if isinstance(target, ast.Tuple) and ast.unparse(value) in (f"{x}.shape", f"{x}.size()"):
                others, *known = target.elts
                if not isinstance(others, ast.Starred) or len(known) > 2:
                    raise _OtherwiseError(f"it does `{_line(statement)}`")
                named = [(one, place - len(known)) for place, one in enumerate(known)]
            for one, axis in named:
                fresh = isinstance(one, ast.Name) and one.id != x and sizes.get(one.id, axis) == axis
                if axis is None or not fresh:
                    raise _OtherwiseError(f"it does `{_line(statement)}`")
                assert isinstance(one, ast.Name)
                sizes[one.id] = axis

    def _loop(self, loop: ast.For, x: str, sizes: Mapping[str, int]) -> str:
        """The count that a loop of masks is over."""
        count = next((name for name in _AXES if ast.unparse(loop.iter) == f"range(self.{name})"), None)
        unused = isinstance(loop.target, ast.Name) and loop.target.id not in {x, *sizes}
        names = {node.id for one in loop.body for node in ast.walk(one) if isinstance(node, ast.Name)}
        if count is None or loop.orelse or not unused or ast.unparse(loop.target) in names:
            raise _OtherwiseError(f"it does `{_line(loop)}`")
        body = list(loop.body)
        if len(body) == 1 and (called := self._called(body[0], x)) is not None:
            inner, steps = _statements(called)
            if not steps or ast.unparse(steps[-1]) != f"return {inner}":
                raise _OtherwiseError(f"`{called.name}` does not return its argument")
            self._mask(steps[:-1], inner, {}, count)
        else:
            self._mask(body, x, sizes, count)
        return count

    def _called(self, statement: ast.stmt, x: str) -> ast.FunctionDef | None:
        """The method that ``x = self.method(x)`` calls."""
        for name, method in self._methods.items():
            if ast.unparse(statement) == f"{x} = self.{name}({x})" and name not in ("forward", "__init__"):
                return method
        return None

    def _mask(self, steps: Sequence[ast.stmt], x: str, outer: Mapping[str, int], count: str) -> None:
        """One mask: sizes, a width, a start and the stretch."""
        parameter, axis = _AXES[count]
        sizes = dict(outer)
        if len(steps) < 3:
            raise _OtherwiseError("a mask is not a width, a start and a stretch")
        for statement in steps[:-3]:
            self._size(statement, x, sizes)
        (width, widest), (start, room) = (_draw(one, x, sizes) for one in steps[-3:-1])
        if not _is_widest(widest, parameter, axis, x, sizes):
            raise _OtherwiseError(f"`{width}` is not drawn from 0 to min({parameter}, size)")
        if start == width or not _is_room(room, width, axis, x, sizes):
            raise _OtherwiseError(f"`{start}` is not drawn from where the mask fits")
        after = "" if axis == -1 else ", :"
        stretches = [f"{x}[..., {start}:{stop}{after}] = self.mask_value" for stop in _sums(start, width)]
        if ast.unparse(steps[-1]) not in stretches:
            raise _OtherwiseError(f"it does `{_line(steps[-1])}`")


def _sums(one: str, other: str) -> tuple[str, str]:
    return f"{one} + {other}", f"{other} + {one}"


def _draw(statement: ast.stmt, x: str, sizes: Mapping[str, int]) -> tuple[str, ast.expr]:
    """Name and upper end of ``name = random.randint(0, end)``."""
    [(target, value), *more] = _pairs(statement)
    drawn = isinstance(value, ast.Call) and ast.unparse(value.func) == "random.randint" and len(value.args) == 2
    if more or not drawn or not isinstance(target, ast.Name) or target.id in {x, *sizes}:
        raise _OtherwiseError(f"it does `{_line(statement)}`")
    assert isinstance(value, ast.Call)
    if value.keywords or ast.unparse(value.args[0]) != "0":
        raise _OtherwiseError(f"`{target.id}` is not drawn from 0")
    return target.id, value.args[1]


def _axis(value: ast.expr, x: str, sizes: Mapping[str, int]) -> int | None:
    """The axis whose size ``value`` is."""
    if isinstance(value, ast.Name):
        return sizes.get(value.id)
    text = ast.unparse(value)
    return next((axis for axis in (-1, -2) if text in (f"{x}.shape[{axis}]", f"{x}.size({axis})")), None)


def _is_widest(value: ast.expr, parameter: str, axis: int, x: str, sizes: Mapping[str, int]) -> bool:
    if not isinstance(value, ast.Call) or ast.unparse(value.func) != "min" or len(value.args) != 2 or value.keywords:
        return False
    others = [one for one in value.args if ast.unparse(one) != f"self.{parameter}"]
    return len(others) == 1 and _axis(others[0], x, sizes) == axis


def _is_room(value: ast.expr, width: str, axis: int, x: str, sizes: Mapping[str, int]) -> bool:
    if isinstance(value, ast.Call) and ast.unparse(value.func) == "max" and len(value.args) == 2 and not value.keywords:
        # The width is never larger than the size.
        others = [one for one in value.args if ast.unparse(one) != "0"]
        return len(others) == 1 and _is_room(others[0], width, axis, x, sizes)
    if not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.Sub) or ast.unparse(value.right) != width:
        return False
    return _axis(value.left, x, sizes) == axis


def _check_noise(forward: ast.FunctionDef) -> None:
    x, body = _statements(forward)
    *steps, last = _work(x, body)
    if not isinstance(last, ast.Return) or last.value is None:
        raise _OtherwiseError(f"it does `{_line(last)}`")
    names: dict[str, ast.expr] = {}
    for statement in steps:
        [(target, value), *more] = _pairs(statement)
        if more or not isinstance(target, ast.Name) or target.id in {x, *names}:
            raise _OtherwiseError(f"it does `{_line(statement)}`")
        names[target.id] = value
    noise = (f"torch.randn_like({x}) * self.std", f"self.std * torch.randn_like({x})")
    sums = [text for one in noise for text in _sums(x, one)]
    ends = [f"{low}, {high}" for zero, one in (("0", "1"), ("0.0", "1.0")) for low, high in _ends(zero, one)]
    results = {text for one in sums for end in ends for text in (f"torch.clamp({one}, {end})", f"({one}).clamp({end})")}
    result = _expanded(last.value, names)
    if names or result not in results:  # what is left in names was never used
        raise _OtherwiseError("its result is not `clamp(x + randn_like(x) * std, 0, 1)`")


def _ends(zero: str, one: str) -> list[tuple[str, str]]:
    return [(zero, one), (f"min={zero}", f"max={one}")]


def _expanded(value: ast.expr, names: dict[str, ast.expr]) -> str:
    """The text of ``value`` with ``names`` replaced by what they stand for; those used are removed."""

    class Expand(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            if node.id not in names:
                return node
            found: ast.expr = self.visit(names.pop(node.id))
            return found

    return ast.unparse(Expand().visit(ast.parse(ast.unparse(value), mode="eval").body))

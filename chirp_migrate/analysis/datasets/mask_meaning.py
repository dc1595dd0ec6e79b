"""Whether a class draws the same masks as the shipped transform, read from its source.

The check knows one grammar of statements, and refuses whatever else stands there. Names may be any, sizes may be
kept in names or not, the gate may return early or enclose the work, and a mask may be a method of its own.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from chirp_migrate.analysis.datasets.augmenter_grammar import (
    DrawsOtherwise,
    assigned_pairs,
    either_sum,
    first_line,
    methods_of,
    parts_by_gate,
    taking_one_sample,
)

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


def masks_like_spec_augment(class_source: str) -> tuple[str, ...]:
    """What the decorator ``masks`` must say of the class, so that the shipped ``SpecAugment`` masks as it does.

    With probability 1 - p the sample is returned; else a clone of it, in which so many stretches of each axis are
    overwritten with ``mask_value``, of widths uniform in 0..min(parameter, size) and starts uniform where they fit.

    Raises:
        DrawsOtherwise: where that is not certain; the message says why.
    """
    return _said_of_masks(class_source, "forward", Tensors)


def masks_images_like_spec_augment(class_source: str) -> tuple[str, ...]:
    """As :func:`masks_like_spec_augment` for the decorator ``masks_images``: grey images (F, T), and ``__call__``."""
    return _said_of_masks(class_source, "__call__", Images)


@dataclass(frozen=True)
class _Array:
    """A tensor or array of the sample.

    Attributes:
        ndim: how many axes it has; ``None`` for three or more.
        own: whether it is the copy that is masked.
        lifted: whether an axis was put in front of the sample.
    """

    ndim: int | None
    own: bool = False
    lifted: bool = False


@dataclass(frozen=True)
class _Size:
    """The size of the last axis (-1) or the one before it (-2)."""

    axis: int


class _Unknown:
    """A value that nothing may depend on."""


_UNKNOWN = _Unknown()
#: An image as it was given.
_IMAGE = _Unknown()
#: What a name stands for; an int is a number of axes, a bool whether there are two.
_Meant = _Array | _Size | _Unknown | bool | int | None


class Tensors:
    """Masks in tensors (…, F, T): how the copy is made and given back."""

    #: The numbers of axes of samples, ``None`` for three or more.
    ndims: tuple[int | None, ...] = (2, None)

    @staticmethod
    def copied(x: str) -> tuple[str, ...]:
        """Expressions for the copy of ``x`` that is masked."""
        return (f"{x}.clone()",)

    @staticmethod
    def given_back(value: ast.expr) -> ast.expr | None:
        """The copy in what is returned."""
        return value


class Images(Tensors):
    """Masks in grey images (F, T), as arrays that are made images again."""

    ndims = (2,)

    @staticmethod
    def copied(x: str) -> tuple[str, ...]:
        """See :class:`Tensors`."""
        return f"np.array({x})", f"numpy.array({x})", f"np.array({x}).copy()", f"np.asarray({x}).copy()"

    @staticmethod
    def given_back(value: ast.expr) -> ast.expr | None:
        """See :class:`Tensors`."""
        made = isinstance(value, ast.Call) and ast.unparse(value.func) in ("Image.fromarray", "PIL.Image.fromarray")
        return value.args[0] if made and len(value.args) == 1 and not value.keywords else None  # type: ignore[attr-defined]


def _said_of_masks(class_source: str, entry: str, form: type[Tensors]) -> tuple[str, ...]:
    """Whether axes not longer than their parameter are left alone, as the decorator says it.

    ``entry`` is the method that takes a sample.
    """
    methods = methods_of(class_source)
    guarded = {_Masks(methods, form, ndim).check(methods[entry]) for ndim in form.ndims}
    if len(guarded) > 1:
        raise DrawsOtherwise("it leaves short axes alone in some samples only")
    return ("mask_short_axes=False",) if guarded.pop() else ()


class _Masks:
    """The grammar of masks, for samples of a number of axes.

    What stands outside of the loops is followed as it runs: names of sizes, an axis put in front of samples of two
    axes and taken away again, and tests whether there are two.
    """

    def __init__(self, methods: Mapping[str, ast.FunctionDef], form: type[Tensors], ndim: int | None) -> None:
        self._methods = methods
        self._form = form
        self._ndim = ndim
        self._names: dict[str, _Meant] = {}
        self._masked: list[str] = []
        self._guarded: set[str] = set()
        self._copies = 0

    def check(self, function: ast.FunctionDef) -> bool:
        """Whether axes not longer than their parameter are left alone."""
        x, body = taking_one_sample(function)
        before, work, left = parts_by_gate(body)
        self._names[x] = self._given()
        if self._run(before):
            raise DrawsOtherwise("it returns before its gate")
        same = [f"return {name}" for name, meant in self._names.items() if meant == self._given()]
        if self._copies or len(left) != 1 or ast.unparse(left[0]) not in same:
            raise DrawsOtherwise("its gate does not return the sample as it is")
        if not self._run(work):
            raise DrawsOtherwise("it does not return the clone")
        if sorted(self._masked) != sorted(_AXES):
            raise DrawsOtherwise("it does not mask time and frequency once each")
        if self._guarded not in (set(), set(_AXES)):
            raise DrawsOtherwise("it leaves short axes alone in one direction only")
        return bool(self._guarded)

    def _given(self) -> _Meant:
        """What the sample is as it is given."""
        return _IMAGE if self._form is Images else _Array(self._ndim)

    def _run(self, statements: Sequence[ast.stmt]) -> bool:
        """Follow statements outside of the loops; whether they end in a ``return``."""
        for statement in statements:
            if isinstance(statement, ast.Return):
                self._returned(statement)
                return True
            if isinstance(statement, ast.For):
                self._loop(statement, frozenset())
            elif isinstance(statement, ast.If):
                holds = self._meant(statement.test)
                if isinstance(holds, bool):
                    if self._run(statement.body if holds else statement.orelse):
                        return True
                    continue
                if statement.orelse or len(statement.body) != 1 or not isinstance(statement.body[0], ast.For):
                    raise DrawsOtherwise(f"it does `{first_line(statement)}`")
                self._loop(statement.body[0], self._asked(statement.test, self._names))
            else:
                self._assign(statement, self._names)
        return False

    def _returned(self, statement: ast.Return) -> None:
        value = statement.value
        if isinstance(value, ast.IfExp) and isinstance(holds := self._meant(value.test), bool):
            value = value.body if holds else value.orelse
        given = None if value is None else self._form.given_back(value)
        if given is None or self._meant(given) != _Array(self._ndim, own=True):
            raise DrawsOtherwise("it does not return the clone")

    def _assign(self, statement: ast.stmt, names: dict[str, _Meant]) -> None:
        """Names of sizes; outside of the loops also of arrays, and whether there are two axes."""
        for target, value in assigned_pairs(statement):
            if isinstance(target, ast.Tuple):
                self._unpack(target, value, statement, names)
                continue
            meant = self._meant(value) if names is self._names else _size(value, names)
            if not isinstance(target, ast.Name) or meant is None:
                raise DrawsOtherwise(f"it does `{first_line(statement)}`")
            self._bind(target.id, meant, statement, names)

    def _bind(self, name: str, meant: _Meant, statement: ast.stmt, names: dict[str, _Meant]) -> None:
        """Give a name its meaning; arrays and answers may change, a size means one size throughout."""
        known = names.get(name, meant)
        changes = type(known) is type(meant) and isinstance(meant, _Array | bool)
        if name == "self" or (known != meant and not changes):
            raise DrawsOtherwise(f"it does `{first_line(statement)}`")
        names[name] = meant

    def _unpack(self, target: ast.Tuple, value: ast.expr, statement: ast.stmt, names: dict[str, _Meant]) -> None:
        """``*_, rows, columns = x.shape``, or as many names as there are axes."""
        array, ends = _shape_of(value, names)
        starred = isinstance(target.elts[0], ast.Starred)
        count = len(target.elts) - starred
        if array is None or (starred and (ends or count > 2)) or (ends and count != 2):
            raise DrawsOtherwise(f"it does `{first_line(statement)}`")
        if not starred and not ends:
            self._has_axes(array, count, names)
        for place, one in enumerate(target.elts, -len(target.elts)):
            name = one.value if isinstance(one, ast.Starred) else one
            if not isinstance(name, ast.Name) or (name is not one and one is not target.elts[0]):
                raise DrawsOtherwise(f"it does `{first_line(statement)}`")
            self._bind(name.id, _Size(place) if place >= -2 and name is one else _UNKNOWN, statement, names)

    def _has_axes(self, array: _Array, count: int, names: dict[str, _Meant]) -> None:
        """The array has ``count`` axes, or an error is raised here."""
        if array.ndim not in (count, None) or (array.ndim is None and (count != 3 or array.lifted)):
            raise DrawsOtherwise(f"it takes samples of {count} axes only")
        for known in (names, self._names):
            for name, one in known.items():
                if isinstance(one, _Array) and one.ndim is None and not one.lifted:
                    known[name] = replace(one, ndim=count)
        if self._ndim is None:
            self._ndim = count

    def _meant(self, value: ast.expr) -> _Meant:
        """What an expression outside of the loops stands for; ``None`` for what the grammar does not know."""
        names = self._names
        if isinstance(value, ast.Name):
            return names.get(value.id)
        if isinstance(value, ast.Constant) and isinstance(value.value, bool):
            return value.value
        if isinstance(value, ast.IfExp) and isinstance(holds := self._meant(value.test), bool):
            return self._meant(value.body if holds else value.orelse)
        if isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.Not):
            return not holds if isinstance(holds := self._meant(value.operand), bool) else None
        if isinstance(value, ast.Compare) and [type(one) for one in value.ops] == [ast.Eq]:
            if ast.unparse(value.comparators[0]) != "2" or (count := self._axes(value.left)) is None:
                return None
            return count == 2
        if (count := self._axes(value)) is not None:
            return count
        if (size := _size(value, names)) is not None:
            return size
        text = ast.unparse(value)
        for name, one in names.items():
            if (isinstance(one, _Array) or one is _IMAGE) and text in self._form.copied(name):
                self._copies += 1
                if self._copies > 1:
                    raise DrawsOtherwise("it makes several copies")
                return _Array(2, own=True) if one is _IMAGE else replace(one, own=True)  # type: ignore[type-var]
            if isinstance(one, _Array) and text == f"{name}.unsqueeze(0)" and not one.lifted:
                return replace(one, ndim=None if one.ndim is None else one.ndim + 1, lifted=True)
            if isinstance(one, _Array) and text == f"{name}.squeeze(0)" and one.lifted:
                return replace(one, ndim=self._ndim, lifted=False)
        return None

    def _axes(self, value: ast.expr) -> int | None:
        """How many axes an expression says there are: 3 stands for more, too, where that is not known."""
        if isinstance(value, ast.Name):
            known = self._names.get(value.id)
            return known if type(known) is int else None
        text = ast.unparse(value)
        for name, one in self._names.items():
            if isinstance(one, _Array) and text in (f"{name}.dim()", f"{name}.ndim", f"len({name}.shape)"):
                return 3 if one.ndim is None else one.ndim
        return None

    def _loop(self, loop: ast.For, asked: frozenset[str]) -> None:
        """A loop of masks; ``asked`` are the conditions that it is run under."""
        count = next((name for name in _AXES if ast.unparse(loop.iter) == f"range(self.{name})"), None)
        unused = isinstance(loop.target, ast.Name) and self._names.get(loop.target.id, _UNKNOWN) is _UNKNOWN
        if count is None or loop.orelse or not unused or ast.unparse(loop.target) == "self":
            raise DrawsOtherwise(f"it does `{first_line(loop)}`")
        body = list(loop.body)
        if len(body) == 1 and (called := self._called(body[0])) is not None:
            method, array = called
            inner, steps = taking_one_sample(method)
            if not steps or ast.unparse(steps[-1]) != f"return {inner}":
                raise DrawsOtherwise(f"`{method.name}` does not return its argument")
            self._mask(steps[:-1], {inner: array}, count, asked)
        else:
            self._mask(body, dict(self._names), count, asked)
        self._masked.append(count)

    def _called(self, statement: ast.stmt) -> tuple[ast.FunctionDef, _Array] | None:
        """The method that ``x = self.method(x)`` calls, and what it is given."""
        for name, method in self._methods.items():
            for x, meant in self._names.items():
                if ast.unparse(statement) == f"{x} = self.{name}({x})":
                    is_own = name != "forward" and not name.startswith("__")
                    return (method, meant) if is_own and isinstance(meant, _Array) else None
        return None

    def _mask(self, steps: Sequence[ast.stmt], names: dict[str, _Meant], count: str, asked: frozenset[str]) -> None:
        """One mask: sizes, perhaps a guard, a width, a start and the stretch."""
        parameter, axis = _AXES[count]
        steps = list(steps)
        while len(steps) > 1 and not _is_draw(steps[0]):
            self._assign(steps.pop(0), names)
        guard = steps[0] if len(steps) == 1 else None
        if isinstance(guard, ast.If) and not guard.orelse:
            self._mask(guard.body, names, count, asked | self._asked(guard.test, names))
            return
        if len(steps) == 2 and isinstance(steps[1], ast.If) and not steps[1].orelse:
            width = _draw(steps[0], names)[0]
            if ast.unparse(steps[1].test) not in (f"{width} > 0", f"0 < {width}"):
                raise DrawsOtherwise(f"it does `{first_line(steps[1])}`")
            steps = [steps[0], *steps[1].body]
        if len(steps) != 3:
            raise DrawsOtherwise("a mask is not drawn as a width and a start")
        self._check_asked(asked, count)
        (width, widest), (start, room) = (_draw(one, names) for one in steps[:2])
        sizes = _sizes(axis, names)
        if widest not in [text for size in sizes for text in _either_call("min", f"self.{parameter}", size)]:
            raise DrawsOtherwise(f"`{width}` is not drawn from 0 to min({parameter}, size)")
        rooms = [f"{size} - {width}" for size in sizes]
        rooms += [text for one in rooms for text in _either_call("max", "0", one)]  # no width is larger than the size
        if start == width or room not in rooms:
            raise DrawsOtherwise(f"`{start}` is not drawn from where the mask fits")
        arrays = [(name, one) for name, one in names.items() if isinstance(one, _Array) and one.own]
        written = [f"{x}[{place}]" for x, one in arrays for place in _stretches(one, axis, start, width)]
        if ast.unparse(steps[-1]) not in [f"{one} = self.mask_value" for one in written]:
            raise DrawsOtherwise(f"it does `{first_line(steps[-1])}`")

    def _asked(self, test: ast.expr, names: Mapping[str, _Meant]) -> frozenset[str]:
        """What a guard asks for, its parts joined by ``and``: which axis has a positive parameter, or is longer."""
        parts = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
        known: dict[str, str] = {}
        for count, (parameter, axis) in _AXES.items():
            known |= dict.fromkeys((f"self.{parameter} > 0", f"0 < self.{parameter}"), f"{count} positive")
            for size in _sizes(axis, names):
                longer = f"{size} > self.{parameter}", f"self.{parameter} < {size}"
                known |= dict.fromkeys(longer, f"{count} longer")
        return frozenset(known.get(text, text) for text in map(ast.unparse, parts))

    def _check_asked(self, asked: frozenset[str], count: str) -> None:
        """A mask is drawn always, or only where its axis is longer than its parameter; 0 is as wide as no mask."""
        if not asked <= {f"{count} positive", f"{count} longer"}:
            raise DrawsOtherwise("its masks depend on something else than `parameter > 0 and size > parameter`")
        if f"{count} longer" in asked:
            self._guarded.add(count)


def _stretches(array: _Array, axis: int, start: str, width: str) -> list[str]:
    """Subscripts for a stretch of an axis, all others whole."""
    found: list[str] = []
    for stop in either_sum(start, width):
        stretch = f"{start}:{stop}"
        found.append(f"..., {stretch}" if axis == -1 else f"..., {stretch}, :")
        if array.ndim is not None:
            axes = [":"] * array.ndim
            axes[axis] = stretch
            found.append(", ".join(axes))
            found += [", ".join(axes[:-1])] if axis == -2 else []
    return found


def _is_draw(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If) or (
        isinstance(statement, ast.Assign)
        and isinstance(statement.value, ast.Call)
        and ast.unparse(statement.value.func) == "random.randint"
    )


def _draw(statement: ast.stmt, names: Mapping[str, _Meant]) -> tuple[str, str]:
    """Name and source of the upper end of ``name = random.randint(0, end)``."""
    [(target, value), *more] = assigned_pairs(statement)
    drawn = isinstance(value, ast.Call) and ast.unparse(value.func) == "random.randint" and len(value.args) == 2
    if more or not drawn or not isinstance(target, ast.Name) or target.id in {"self", *names}:
        raise DrawsOtherwise(f"it does `{first_line(statement)}`")
    assert isinstance(value, ast.Call)
    if value.keywords or ast.unparse(value.args[0]) != "0":
        raise DrawsOtherwise(f"`{target.id}` is not drawn from 0")
    return target.id, ast.unparse(value.args[1])


def _shape_of(value: ast.expr, names: Mapping[str, _Meant]) -> tuple[_Array | None, bool]:
    """The array whose shape ``value`` is, and whether only its last two axes are."""
    text = ast.unparse(value)
    for name, one in names.items():
        if isinstance(one, _Array) and text in (f"{name}.shape", f"{name}.size()", f"{name}.shape[-2:]"):
            return one, text.endswith("[-2:]")
    return None, False


def _sizes(axis: int, names: Mapping[str, _Meant]) -> list[str]:
    """Sources of expressions for the size of an axis."""
    found = [name for name, one in names.items() if one == _Size(axis)]
    for name, one in names.items():
        if isinstance(one, _Array):
            places = [axis] if one.ndim is None else [axis, one.ndim + axis]
            found += [text for place in places for text in (f"{name}.shape[{place}]", f"{name}.size({place})")]
    return found


def _size(value: ast.expr, names: Mapping[str, _Meant]) -> _Size | None:
    """The size of an axis that ``value`` is."""
    text = ast.unparse(value)
    return next((_Size(axis) for axis in (-1, -2) if text in _sizes(axis, names)), None)


def _either_call(function: str, one: str, other: str) -> tuple[str, str]:
    return f"{function}({one}, {other})", f"{function}({other}, {one})"

"""Read the source of a class, and check whether it augments with the distribution of a ``chirpid_patch`` transform.

The checks accept a few forms of code and refuse all other code. Names of variables are arbitrary, sizes may be stored
in variables, and a separate method may apply a mask. The gate, an ``if`` that decides at random whether to augment the
sample, may return early or enclose the code that masks.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

from chirp_migrate.analysis.datasets.augmenter_grammar import (
    ExpressionNormalizer,
    UnknownAugmentation,
    first_source_line,
    methods_of,
    sample_parameter_and_body,
    split_at_random_condition,
    target_value_pairs,
)

MASK_PARAMETERS = (
    "time_mask_param",
    "freq_mask_param",
    "num_time_masks",
    "num_freq_masks",
    "mask_value",
    "p",
)
#: Possible values of variables: the sample, the masked copy, sample and copy with an added first axis (*lifted*),
#: sizes.
_SAMPLE, _COPY, _LIFTED, _LIFTED_COPY = (ast.Name(f"<{one}>") for one in ("sample", "copy", "lifted", "lifted copy"))
_IMAGE, _FRAMES, _BINS, _UNKNOWN = (ast.Name(f"<{one}>") for one in ("image", "frames", "bins", "unknown"))
_ARRAYS = (_SAMPLE, _COPY, _LIFTED, _LIFTED_COPY)
#: The sizes of the last two axes, by their index in the shape.
_SIZES = {-1: _FRAMES, -2: _BINS}
#: Maps the attribute with the number of masks on an axis to the attribute with the largest width of these masks, and
#: the index of the axis.
_AXES = {"num_time_masks": ("time_mask_param", -1), "num_freq_masks": ("freq_mask_param", -2)}
#: Code that copies an image to an array.
_IMAGE_COPIES = ("np.array({})", "numpy.array({})", "np.array({}).copy()", "np.asarray({}).copy()")
_Names = dict[str, ast.expr]


class _RaisesError(Exception):
    """Raised if the class raises an error for every sample that has as many axes as the check assumes."""


def masks_like_spec_augment(class_source: str) -> tuple[str, ...]:
    """Return the arguments with which the decorator ``masks_spectrograms`` describes the masks of the class.

    With probability 1 - ``self.p``, the class must return the sample unchanged. Otherwise, the class must return a
    clone in which ``mask_value`` overwrites some ranges of each axis. The width of a range is a random integer from 0
    to min(largest width, size of the axis), both included. All widths are equally probable. The largest width is
    ``time_mask_param`` or ``freq_mask_param``. The start of a range is uniform over all positions at which the range
    fits.

    Raises:
        UnknownAugmentation: the class may augment in another way. The message is the reason.
    """
    return _masking_arguments(class_source, "forward", (2, 3, 4))


def masks_images_like_spec_augment(class_source: str) -> tuple[str, ...]:
    """Return the arguments with which the decorator ``masks_images`` describes the masks of the class.

    The class must fulfil the conditions of :func:`masks_like_spec_augment`, with two differences: the samples are grey
    images (F, T), and the method that receives a sample is ``__call__`` instead of ``forward``.
    """
    return _masking_arguments(class_source, "__call__", (2,))


def _masking_arguments(class_source: str, entry: str, ndims: Sequence[int]) -> tuple[str, ...]:
    """Return the arguments of the decorator: ``mask_short_axes=False`` if short axes stay unmasked, else no argument.

    An axis is short if its size is at most the largest width of a mask on this axis.

    ``entry`` is the method that receives a sample. ``ndims`` are the possible numbers of axes of a sample; 4 means four
    or more.
    """
    methods = methods_of(class_source)
    guarded: set[bool] = set()
    for ndim in ndims:
        try:
            guarded.add(_MaskGrammar(methods, entry == "__call__", ndim).check(methods[entry]))
        except _RaisesError:
            continue
    if len(guarded) > 1:
        raise UnknownAugmentation("whether the class masks short axes depends on the number of axes of the sample")
    return ("mask_short_axes=False",) if guarded.pop() else ()


def _equal_expressions(ndim: int) -> _Names:
    """Return a dictionary from the source of expressions to their values, for samples with ``ndim`` axes.

    The expressions are sizes, numbers of axes, and samples with an added axis.
    """
    same: _Names = {}
    counts = {count: ast.Constant(count) for count in (ndim, ndim + 1)}
    for array, lifted in ((_SAMPLE, _LIFTED), (_COPY, _LIFTED_COPY)):
        same |= {f"{array.id}.unsqueeze(0)": lifted, f"{lifted.id}.squeeze(0)": array}
        for x, count in ((array.id, ndim), (lifted.id, ndim + 1)):
            same |= dict.fromkeys((f"{x}.dim()", f"{x}.ndim", f"len({x}.shape)"), counts[count])
            for axis, size in _SIZES.items():
                for place in (axis, count + axis) if ndim < 4 else (axis,):
                    same |= dict.fromkeys((f"{x}.shape[{place}]", f"{x}.size({place})"), size)
    return same


class _MaskGrammar:
    """Check the code of a class that masks parts of samples with ``ndim`` axes.

    Outside of the loops over masks, the check reads the statements in order. The check records the variables that
    contain sizes, arrays or truth values. The check also records whether the code adds a first axis to the sample,
    which the code must later remove.
    """

    def __init__(self, methods: Mapping[str, ast.FunctionDef], images: bool, ndim: int) -> None:
        self._methods = methods
        self._ndim = ndim
        self._equal_expressions = _equal_expressions(ndim)
        self._sample = _IMAGE if images else _SAMPLE
        self._copied = {
            text.format(x.id): _LIFTED_COPY if x in (_LIFTED, _LIFTED_COPY) else _COPY
            for text in (_IMAGE_COPIES if images else ("{}.clone()",))
            for x in (*_ARRAYS, _IMAGE)
        }
        self._returned = ("Image.fromarray({})", "PIL.Image.fromarray({})") if images else ("{}",)
        self._names: _Names = {}
        self._masked: list[str] = []
        self._guarded: set[str] = set()
        self._copies = 0

    def _replace_terms(self, node: ast.AST, names: _Names | None = None) -> Any:
        return ExpressionNormalizer(self._names if names is None else names, self._equal_expressions).normalized(node)

    def _normalized_text(self, node: ast.AST, names: _Names | None = None) -> str:
        return ast.unparse(self._replace_terms(node, names))

    def check(self, function: ast.FunctionDef) -> bool:
        """Check a method, and return whether the method leaves short axes unmasked (see :func:`_masking_arguments`).

        Raises:
            UnknownAugmentation: the class may augment in another way.
        """
        x, body = sample_parameter_and_body(function)
        before, work, left = split_at_random_condition(body)
        self._names[x] = self._sample
        if self._trace(before):
            raise UnknownAugmentation("the method returns before `random.random() > self.p` decides whether to augment")
        if self._copies or list(map(self._normalized_text, left)) != [f"return {self._sample.id}"]:
            raise UnknownAugmentation("the method does not return the unchanged sample when it skips the augmentation")
        if not self._trace(work):
            raise UnknownAugmentation("the method does not return the cloned sample")
        if sorted(self._masked) != sorted(_AXES):
            raise UnknownAugmentation(
                "the class does not have exactly one loop for time masks and one loop for frequency masks"
            )
        if self._guarded not in (set(), set(_AXES)):
            raise UnknownAugmentation(
                "only one of the two loops, for time masks and for frequency masks, skips short axes"
            )
        return bool(self._guarded)

    def _trace(self, statements: Sequence[ast.stmt]) -> bool:
        """Check statements that are in no loop over masks, and return whether they end with a ``return``.

        The method also checks the loops over masks that it finds in the statements, and records values of variables.
        """
        for statement in statements:
            match statement:
                case ast.Return():
                    text = self._normalized_text(statement).removeprefix("return ")
                    self._trace_copy(text)
                    if text not in [made.format(_COPY.id) for made in self._returned]:
                        raise UnknownAugmentation("the method does not return the cloned sample")
                    return True
                case ast.For():
                    self._check_loop(statement, frozenset())
                case ast.If(test=test) if _is_bool(holds := self._replace_terms(test)):
                    if self._trace(statement.body if holds.value else statement.orelse):
                        return True
                case ast.If(test=test, body=[ast.For() as loop], orelse=[]):
                    self._check_loop(loop, self._guard_conditions(test, self._names))
                case ast.If():
                    raise UnknownAugmentation(f"the rule does not recognise `{first_source_line(statement)}`")
                case _:
                    self._trace_assignment(statement, self._names)
        return False

    def _trace_assignment(self, statement: ast.stmt, names: _Names) -> None:
        """Record the value that a statement assigns to a variable.

        The value must be a size. In statements outside of loops, the value may also be an array, a number of axes, or
        True or False.

        Raises:
            UnknownAugmentation: the statement assigns any other value, or is no assignment.
        """
        for target, value in target_value_pairs(statement):
            if isinstance(target, ast.Tuple):
                self._trace_unpacking(target, value, statement, names)
                continue
            meaning = self._replace_terms(value, names)
            is_known = meaning in _SIZES.values()
            if names is self._names:
                meaning = self._trace_copy(ast.unparse(meaning)) or meaning
                known = (*_ARRAYS, self._sample, _UNKNOWN, *self._equal_expressions.values())
                is_known = is_known or meaning in known or _is_bool(meaning)
            if not isinstance(target, ast.Name) or not is_known:
                raise UnknownAugmentation(f"the rule does not recognise `{first_source_line(statement)}`")
            self._set_meaning(target.id, meaning, statement, names)

    def _trace_copy(self, text: str) -> ast.expr | None:
        """Return the copy of the sample that an expression creates; None if the expression creates no copy.

        Raises:
            UnknownAugmentation: the code has already created a copy of the sample.
        """
        copy = self._copied.get(text)
        self._copies += copy is not None
        if self._copies > 1:
            raise UnknownAugmentation("the method copies the sample more than once")
        return copy

    def _set_meaning(self, name: str, meaning: ast.expr, statement: ast.stmt, names: _Names) -> None:
        """Record the value of a variable.

        A variable with an array may get another array, and a variable with True or False may get the other value. No
        other variable may change.
        """
        known = names.get(name, meaning)
        changes = (known in _ARRAYS and meaning in _ARRAYS) or (_is_bool(known) and _is_bool(meaning))
        if name == "self" or (known is not meaning and not changes):
            raise UnknownAugmentation(f"the rule does not recognise `{first_source_line(statement)}`")
        names[name] = meaning

    def _trace_unpacking(self, target: ast.Tuple, value: ast.expr, statement: ast.stmt, names: _Names) -> None:
        """Record the sizes that a statement such as ``*_, rows, columns = x.shape`` assigns to variables.

        For samples with two axes, ``x.shape[:2]`` counts as ``x.shape``.
        """
        shape = self._normalized_text(value, names)
        if self._ndim == 2 and not shape.startswith((_LIFTED.id, _LIFTED_COPY.id)):
            shape = shape.removesuffix("[:2]")
        ends = shape.endswith(".shape[-2:]")
        array = next((x for x in _ARRAYS if shape in (f"{x.id}.shape", f"{x.id}.size()", f"{x.id}.shape[-2:]")), None)
        starred = isinstance(target.elts[0], ast.Starred)
        count = len(target.elts) - starred
        if array is None or (starred and (ends or count > 2)) or (ends and count != 2):
            raise UnknownAugmentation(f"the rule does not recognise `{first_source_line(statement)}`")
        if not starred and not ends and count != self._ndim + (array in (_LIFTED, _LIFTED_COPY)):
            if self._ndim == 4 and count == 3:
                raise _RaisesError
            raise UnknownAugmentation(f"the method takes only samples with {count} axes")
        for place, one in enumerate(target.elts, -len(target.elts)):
            name = one.value if isinstance(one, ast.Starred) else one
            if not isinstance(name, ast.Name) or (name is not one and one is not target.elts[0]):
                raise UnknownAugmentation(f"the rule does not recognise `{first_source_line(statement)}`")
            self._set_meaning(name.id, _SIZES.get(place, _UNKNOWN) if name is one else _UNKNOWN, statement, names)

    def _check_loop(self, loop: ast.For, conditions: frozenset[str]) -> None:
        """Check a loop that applies masks. ``conditions`` contains the conditions under which the loop runs."""
        count = next((name for name in _AXES if ast.unparse(loop.iter) == f"range(self.{name})"), None)
        unused = isinstance(loop.target, ast.Name) and self._names.get(loop.target.id, _UNKNOWN) is _UNKNOWN
        if count is None or loop.orelse or not unused or ast.unparse(loop.target) == "self":
            raise UnknownAugmentation(f"the rule does not recognise `{first_source_line(loop)}`")
        match loop.body:
            case [
                ast.Assign(
                    targets=[ast.Name(id=x)],
                    value=ast.Call(ast.Attribute(ast.Name(id="self"), name), args=[ast.Name(id=given)], keywords=[]),
                )
            ] if given == x and self._names.get(x) in _ARRAYS and self._is_own_method(name):
                inner, steps = sample_parameter_and_body(self._methods[name])
                if not steps or ast.unparse(steps[-1]) != f"return {inner}":
                    raise UnknownAugmentation(f"`{name}` does not return its argument")
                self._check_mask(steps[:-1], {inner: self._names[x]}, count, conditions)
            case body:
                self._check_mask(body, dict(self._names), count, conditions)
        self._masked.append(count)

    def _is_own_method(self, name: str) -> bool:
        return name in self._methods and name != "forward" and not name.startswith("__")

    def _check_mask(self, steps: Sequence[ast.stmt], names: _Names, count: str, conditions: frozenset[str]) -> None:
        """Check the statements that apply one mask.

        The first statements may assign sizes to variables. Then three statements must follow. They assign a random
        width to a variable, a random start to another variable, and ``mask_value`` to a range of the copy of the
        sample. An ``if`` may enclose all three statements. An ``if`` with the condition that the width is above 0 may
        enclose the last two statements.
        """
        parameter, axis = _AXES[count]
        steps = list(steps)
        while len(steps) > 1 and not _is_random_call(steps[0]):
            self._trace_assignment(steps.pop(0), names)
        guard = steps[0] if len(steps) == 1 else None
        if isinstance(guard, ast.If) and not guard.orelse:
            self._check_mask(guard.body, names, count, conditions | self._guard_conditions(guard.test, names))
            return
        if len(steps) == 2 and isinstance(steps[1], ast.If) and not steps[1].orelse:
            width = self._trace_random_number(steps[0], names)[0]
            if self._normalized_text(steps[1].test, names) != f"{width} > 0":
                raise UnknownAugmentation(f"the rule does not recognise `{first_source_line(steps[1])}`")
            steps = [steps[0], *steps[1].body]
        if len(steps) != 3:
            raise UnknownAugmentation("a mask does not have a random width and a random start")
        self._check_guard(conditions, count)
        (width, widest), (start, room) = (self._trace_random_number(step, names) for step in steps[:2])
        size = _SIZES[axis].id
        if widest != f"min({size}, self.{parameter})":
            raise UnknownAugmentation(f"`{width}` is not a random number from 0 to min({parameter}, size)")
        # The width is never larger than the size, so `size - width` and `max(0, size - width)` are equal.
        if start == width or room not in (f"{size} - {width}", f"max(0, {size} - {width})"):
            raise UnknownAugmentation(f"`{start}` is not a random place at which the mask fits")
        range_text = f"{start}:{' + '.join(sorted((start, width)))}"
        places = [f"{_COPY.id}[{place}]" for place in self._range_subscripts(axis, range_text, self._ndim)]
        places += [f"{_LIFTED_COPY.id}[{place}]" for place in self._range_subscripts(axis, range_text, self._ndim + 1)]
        if self._normalized_text(steps[-1], names) not in [f"{place} = self.mask_value" for place in places]:
            raise UnknownAugmentation(f"the rule does not recognise `{first_source_line(steps[-1])}`")

    def _range_subscripts(self, axis: int, range_text: str, count: int) -> list[str]:
        """Return the possible subscripts, such as ``:, start:end``, that select a range on one axis only."""
        places = [f"..., {range_text}" if axis == -1 else f"..., {range_text}, :"]
        if self._ndim < 4:
            axes = [":"] * count
            axes[axis] = range_text
            places.append(", ".join(axes))
            places += [", ".join(axes[:-1])] if axis == -2 else []
        return places

    def _trace_random_number(self, statement: ast.stmt, names: _Names) -> tuple[str, str]:
        """Return the variable, and the source of ``end``, from a statement ``variable = random.randint(0, end)``.

        Raises:
            UnknownAugmentation: the statement has another form.
        """
        match target_value_pairs(statement):
            case [(ast.Name(id=name), ast.Call(func=function, args=[low, high]) as drawn)] if ast.unparse(
                function
            ) == "random.randint" and name not in {"self", *names}:
                if drawn.keywords or ast.unparse(low) != "0":
                    raise UnknownAugmentation(f"`{name}` is not a random number from 0 to a limit")
                return name, self._normalized_text(high, names)
        raise UnknownAugmentation(f"the rule does not recognise `{first_source_line(statement)}`")

    def _guard_conditions(self, test: ast.expr, names: _Names) -> frozenset[str]:
        """Return the conditions of an ``if`` around masks as texts, such as ``num_time_masks longer``.

        The text ``num_time_masks positive`` means that the largest width of masks on the time axis is above 0. The text
        ``num_time_masks longer`` means that the time axis is longer than this width. Conditions on the frequency axis
        begin with ``num_freq_masks``. Any other condition is returned as its source.
        """
        parts = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
        known: dict[str, str] = {}
        for count, (parameter, axis) in _AXES.items():
            known |= {f"self.{parameter} > 0": f"{count} positive"}
            known |= {f"{_SIZES[axis].id} > self.{parameter}": f"{count} longer"}
        return frozenset(known.get(text, text) for text in (self._normalized_text(part, names) for part in parts))

    def _check_guard(self, conditions: frozenset[str], count: str) -> None:
        """Check that a mask has only the conditions *positive* and *longer* of its own axis."""
        if not conditions <= {f"{count} positive", f"{count} longer"}:
            raise UnknownAugmentation(
                "the condition of a mask has parts other than `width > 0` and `size > width` (largest width of the "
                "mask, size of the axis)"
            )
        if f"{count} longer" in conditions:
            self._guarded.add(count)


def _is_bool(value: ast.AST) -> bool:
    return isinstance(value, ast.Constant) and isinstance(value.value, bool)


def _is_random_call(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If) or (
        isinstance(statement, ast.Assign)
        and isinstance(statement.value, ast.Call)
        and ast.unparse(statement.value.func) == "random.randint"
    )


def adds_noise_like_gaussian_noise(class_source: str) -> tuple[str, ...]:
    """Return the arguments with which the decorator ``adds_noise`` describes the noise of the class.

    With probability 1 - ``self.p``, the class must return the sample x. Otherwise, the class must return
    ``clamp(x + randn_like(x) * std, 0, 1)``.

    Raises:
        UnknownAugmentation: the class may augment in another way. The message is the reason.
    """
    x, body = sample_parameter_and_body(methods_of(class_source)["forward"])
    *steps, last = _statements_behind_gate(x, body)
    if not isinstance(last, ast.Return) or last.value is None:
        raise UnknownAugmentation(f"the rule does not recognise `{first_source_line(last)}`")
    names: dict[str, ast.expr] = {}
    for statement in steps:
        [(target, value), *more] = target_value_pairs(statement)
        if more or not isinstance(target, ast.Name) or target.id in {x, *names}:
            raise UnknownAugmentation(f"the rule does not recognise `{first_source_line(statement)}`")
        names[target.id] = ExpressionNormalizer(names).normalized(value)
    noisy = f"{x} + torch.randn_like({x}) * self.std"
    ends = ("0, 1", "min=0, max=1", "0.0, 1.0", "min=0.0, max=1.0")
    results = [text for end in ends for text in (f"torch.clamp({noisy}, {end})", f"({noisy}).clamp({end})")]
    loads = (node for statement in (*steps, last) for node in ast.walk(statement) if isinstance(node, ast.Name))
    unread = names.keys() - {load.id for load in loads if isinstance(load.ctx, ast.Load)}
    if unread or ExpressionNormalizer(names).text(last.value) not in map(ExpressionNormalizer({}).text, results):
        raise UnknownAugmentation("the result is not `clamp(x + randn_like(x) * std, 0, 1)`")
    return ()


def _statements_behind_gate(x: str, body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Return the statements that augment the sample, up to their ``return``.

    The first statement of ``body`` must be the gate: the ``if`` that decides at random whether to augment the sample.
    """
    before, work, left = split_at_random_condition(body)
    if before:
        raise UnknownAugmentation(
            "the method runs other code before `random.random() > self.p` decides whether to augment a sample"
        )
    if not work or [ast.unparse(one) for one in left] != [f"return {x}"]:
        raise UnknownAugmentation("the method does not return the unchanged sample when it skips the augmentation")
    end = next((place for place, one in enumerate(work) if isinstance(one, ast.Return)), len(work))
    return work[: end + 1]

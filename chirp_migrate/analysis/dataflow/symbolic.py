"""What a small straight-line function computes, as a value that can be compared.

Rules recognise code by meaning, not by spelling: ``x, y = self.dataset[i]; x = (x - m) / s; return x, y`` and
``sample = self.dataset[i]; return sample[0].sub(m).div(s), sample[1]`` evaluate to the same :class:`Value`.
Nothing is executed. Loops, ``try``, in-place updates and anything else with effects end the evaluation with
:class:`NotStraightLine`: the rule then reports instead of rewriting.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import libcst as cst

from chirp_migrate.syntax.module import find_in

#: Give up on bodies whose branches multiply beyond this many evaluated statements.
_STATEMENT_LIMIT = 400

_ARITHMETIC_METHODS = {
    "sub": "-",
    "subtract": "-",
    "div": "/",
    "divide": "/",
    "true_divide": "/",
    "add": "+",
    "mul": "*",
}
_OPERATORS: dict[type[cst.CSTNode], str] = {
    cst.Add: "+",
    cst.Subtract: "-",
    cst.Multiply: "*",
    cst.Divide: "/",
    cst.FloorDivide: "//",
    cst.Modulo: "%",
    cst.Power: "**",
}
_COMPARISONS: dict[type[cst.CSTNode], str] = {
    cst.LessThan: "<",
    cst.GreaterThan: ">",
    cst.LessThanEqual: "<=",
    cst.GreaterThanEqual: ">=",
    cst.Equal: "==",
    cst.NotEqual: "!=",
    cst.Is: "is",
    cst.IsNot: "is not",
    cst.In: "in",
    cst.NotIn: "not in",
}


class NotStraightLine(Exception):
    """The function does something whose value this module does not model; the message names it."""


class Value:
    """A symbolic value: one of the classes below. As text it is Python source, with the brackets that it may need."""

    def __str__(self) -> str:
        return _source(self)

    @property
    def parts(self) -> Sequence[Value]:
        """The values that it is made of, in order, but for those that a call is given by keyword."""
        held = (one if isinstance(one, tuple) else (one,) for one in vars(self).values())
        return [part for one in held for part in one if isinstance(part, Value)]

    def rebuilt(self, change: Callable[[Value], Value]) -> Value:
        """The same of changed :attr:`parts`."""

        def changed(held: Any) -> Any:
            if isinstance(held, tuple):
                return tuple(change(one) if isinstance(one, Value) else one for one in held)
            return change(held) if isinstance(held, Value) else held

        made = type(self)(*map(changed, vars(self).values()))
        return item(made.base, made.index) if isinstance(made, Item) else made


@dataclass(frozen=True)
class Name(Value):
    """The value of a name."""

    text: str


@dataclass(frozen=True)
class Const(Value):
    """A literal, by its source."""

    source: str


@dataclass(frozen=True)
class Opaque(Value):
    """What is not modelled, by its source."""

    source: str


@dataclass(frozen=True)
class Attr(Value):
    """``base.name``."""

    base: Value
    name: str


@dataclass(frozen=True)
class Item(Value):
    """``base[index]``; made by :func:`item`."""

    base: Value
    index: Value


@dataclass(frozen=True)
class Call(Value):
    """A call; made by :func:`call`. Of ``*`` and ``**`` the keyword is the star."""

    function: Value
    args: tuple[Value, ...]
    keywords: tuple[tuple[str, Value], ...] = ()


@dataclass(frozen=True)
class Op(Value):
    """Arithmetic, a comparison, ``and`` or ``or``, by its symbol."""

    symbol: str
    left: Value
    right: Value


@dataclass(frozen=True)
class Not(Value):
    """``not operand``."""

    operand: Value


@dataclass(frozen=True)
class Tuple(Value):
    """A tuple that is written down."""

    items: tuple[Value, ...]


@dataclass(frozen=True)
class If(Value):
    """``then if condition else otherwise``."""

    condition: Value
    then: Value
    otherwise: Value


@dataclass(frozen=True)
class Path(Value):
    """Of a traced evaluation: what a way through a function gives, and what it did before."""

    value: Value
    trace: tuple[Step, ...]


@dataclass(frozen=True)
class Step(Value):
    """One thing that was done with a value."""

    value: Value


class Kept(Step):
    """It was given to a name."""


class Read(Step):
    """It is an item, and was asked for."""


class Made(Step):
    """It is a call, and was made."""


class Ran(Step):
    """It is what a function, or one side of a choice, gave: paths."""


def item(base: Value, index: Value) -> Value:
    """Subscript access; an item of a literal tuple is that item."""
    match base, index:
        case Tuple(items), Const(position) if position.isdigit() and int(position) < len(items):
            return items[int(position)]
    return Item(base, index)


def call(function: Value, args: tuple[Value, ...], keywords: tuple[tuple[str, Value], ...] = ()) -> Value:
    """A call; arithmetic spelled as a method is arithmetic."""
    match function, args, keywords:
        case Attr(base, method), (other,), () if method in _ARITHMETIC_METHODS:
            return Op(_ARITHMETIC_METHODS[method], base, other)
        case Attr(Name("torch"), method), (left, right), () if method in _ARITHMETIC_METHODS:
            return Op(_ARITHMETIC_METHODS[method], left, right)
        case Attr(Op(symbol) as base, method), (other,), () if method[:-1] in _ARITHMETIC_METHODS:
            # In place on a temporary: nobody else sees it.
            if method.endswith("_") and symbol in _OPERATORS.values():
                return Op(_ARITHMETIC_METHODS[method[:-1]], base, other)
    return Call(function, args, keywords)


def _source(value: Value) -> str:
    match value:
        case Name(text) | Const(text) | Opaque(text):
            return text
        case Attr(base, name):
            return f"{_operand(base)}.{name}"
        case Item(base, index):
            return f"{_operand(base)}[{index}]"
        case Call(function, args, keywords):
            texts = [*map(str, args), *(f"{k}{v}" if k.startswith("*") else f"{k}={v}" for k, v in keywords)]
            return f"{_operand(function)}({', '.join(texts)})"
        case Op(symbol, left, right):
            return f"{_operand(left)} {symbol} {_operand(right)}"
        case Not(operand):
            return f"not {_operand(operand)}"
        case Tuple(items):
            return f"({', '.join(map(str, items))}{',' if len(items) == 1 else ''})"
        case If(condition, then, otherwise):
            return f"{_operand(then)} if {_operand(condition)} else {_operand(otherwise)}"
        case Path(value):
            return _source(value)
    raise TypeError(f"what a function did has no source: {type(value).__name__}")


def _operand(part: Value) -> str:
    return str(part) if isinstance(part, Name | Const | Attr | Item | Call | Tuple) else f"({part})"


def names_in(value: Value) -> set[str]:
    """Words that ``value`` mentions: names, and every identifier in the source of what is not modelled."""
    match value:
        case Name(text) | Opaque(text):
            return set(re.findall(r"[^\W\d]\w*", text))
        case Call(_, _, keywords):
            given = [one for _, one in keywords]
        case _:
            given = []
    return {name for one in (*value.parts, *given) for name in names_in(one)}


Inline = Callable[[Value], "cst.FunctionDef | None"]


class Evaluator:
    """Evaluates function bodies.

    Args:
        source: gives the source text of a node (for values that are not modelled).
        inline: maps the function part of a call to its definition when the call may be looked into
            (a method of the same class, say), else ``None``.
        traced: wrap what functions give into ``path`` values, so that nothing they do is lost.
    """

    def __init__(
        self, source: Callable[[cst.CSTNode], str], inline: Inline | None = None, *, traced: bool = False
    ) -> None:
        self._source = source
        self._traced = traced
        self._trace: list[Step] = []  # of the function being evaluated
        self._inline = inline or (lambda function: None)
        self._budget = _STATEMENT_LIMIT
        self._depth = 0

    @property
    def trace(self) -> Sequence[Step]:
        """What was done so far, where evaluation is traced."""
        return self._trace

    def function(self, function: cst.FunctionDef | cst.Lambda, arguments: Mapping[str, Value]) -> Value:
        """Value that ``function`` returns when its parameters have the given values.

        Raises:
            NotStraightLine: when the body cannot be evaluated.
        """
        outer, self._trace = self._trace, []
        if isinstance(function, cst.Lambda):
            value = self._left(self.expression(function.body, arguments))
        else:
            value = self._run(statements_of(function.body), dict(arguments))
        self._trace = outer
        self._note(Ran(value))
        return value

    def _note(self, step: Step) -> None:
        if self._traced:
            self._trace.append(step)

    def _left(self, value: Value) -> Value:
        """What a path through a function gives."""
        return Path(value, tuple(self._trace)) if self._traced else value

    def _either(self, condition: Value, then: Callable[[], Value], otherwise: Callable[[], Value]) -> Value:
        before = self._trace
        self._trace = list(before)
        first = then()
        self._trace = list(before)
        second = otherwise()
        self._trace = before
        return first if first == second and not self._traced else If(condition, first, second)

    def block(self, statements: Sequence[cst.CSTNode], env: dict[str, Value]) -> None:
        """Run statements for their effect on the names in ``env`` (no ``return`` among them).

        Raises:
            NotStraightLine: as :meth:`function`.
        """
        for statement in statements:
            if not isinstance(statement, cst.SimpleStatementLine):
                raise NotStraightLine("a block inside the loop")
            for small in statement.body:
                self._assign(small, env)

    def _run(self, statements: Sequence[cst.CSTNode], env: dict[str, Value]) -> Value:
        for position, statement in enumerate(statements):
            self._budget -= 1
            if self._budget < 0:
                raise NotStraightLine("too many branches")
            if isinstance(statement, cst.SimpleStatementLine):
                for small in statement.body:
                    if isinstance(small, cst.Return):
                        return self._left(self.expression(small.value, env) if small.value else Const("None"))
                    self._assign(small, env)
            elif isinstance(statement, cst.If):
                rest = statements[position + 1 :]
                otherwise: Sequence[cst.CSTNode] = ()
                if isinstance(statement.orelse, cst.If):
                    otherwise = [statement.orelse]
                elif statement.orelse is not None:
                    otherwise = statements_of(statement.orelse.body)
                condition = self.expression(statement.test, env)
                sides = [*statements_of(statement.body), *rest], [*otherwise, *rest]
                then, instead = (partial(self._run, side, dict(env)) for side in sides)
                return self._either(condition, then, instead)
            else:
                raise NotStraightLine(f"a {type(statement).__name__.lower()} statement")
        return self._left(Const("None"))

    def _assign(self, small: cst.CSTNode, env: dict[str, Value]) -> None:
        match small:
            case cst.Pass() | cst.Expr(value=cst.SimpleString() | cst.ConcatenatedString()):
                return
            case cst.AnnAssign(target=target, value=cst.BaseExpression() as given):
                targets = [target]
            case cst.Assign(value=given):
                targets = [one.target for one in small.targets]
            case _:
                raise NotStraightLine(f"`{self._source(small).strip()}`")
        value = self.expression(given, env)
        self._note(Kept(value))
        for target in targets:
            self._bind(target, value, env)

    def _bind(self, target: cst.BaseExpression, value: Value, env: dict[str, Value]) -> None:
        if isinstance(target, cst.Name):
            env[target.value] = value
        elif isinstance(target, cst.Tuple | cst.List) and all(type(e) is cst.Element for e in target.elements):
            for position, element in enumerate(target.elements):
                self._bind(element.value, item(value, Const(str(position))), env)
        else:
            raise NotStraightLine(f"an assignment to `{self._source(target)}`")

    def expression(self, node: cst.BaseExpression, env: Mapping[str, Value]) -> Value:
        """Value of an expression; what is not modelled becomes ``opaque`` by its source text.

        Raises:
            NotStraightLine: when an opaque part mentions a name that was assigned before (its value would be lost).
        """
        match node:
            case cst.Name(value=text):
                return env.get(text, Const(text) if text in ("None", "True", "False") else Name(text))
            case cst.Integer() | cst.Float() | cst.SimpleString():
                return Const(self._source(node))
            case cst.UnaryOperation(operator=cst.Minus(), expression=cst.Integer() | cst.Float()):
                return Const(self._source(node))
            case cst.Attribute(value=base, attr=cst.Name(value=name)):
                return Attr(self.expression(base, env), name)
            case cst.Subscript(value=base, slice=[cst.SubscriptElement(slice=cst.Index(value=index))]):
                return self._item(base, index, env)
            case cst.Tuple(elements=elements) if all(type(one) is cst.Element for one in elements):
                return Tuple(tuple(self.expression(one.value, env) for one in elements))
            case cst.BinaryOperation(left=left, operator=operator, right=right) if type(operator) in _OPERATORS:
                return Op(_OPERATORS[type(operator)], self.expression(left, env), self.expression(right, env))
            case cst.BooleanOperation(left=left, operator=operator, right=right):
                symbol = "and" if isinstance(operator, cst.And) else "or"
                return Op(symbol, self.expression(left, env), self.expression(right, env))
            case cst.UnaryOperation(operator=cst.Not(), expression=operand):
                return Not(self.expression(operand, env))
            case cst.Comparison(left=left, comparisons=[cst.ComparisonTarget(operator=operator, comparator=right)]):
                if type(operator) in _COMPARISONS:
                    return Op(_COMPARISONS[type(operator)], self.expression(left, env), self.expression(right, env))
            case cst.IfExp(test=test, body=body, orelse=orelse):
                condition = self.expression(test, env)
                outer, self._trace = self._trace, []
                value = self._either(condition, *(partial(self._side, one, env) for one in (body, orelse)))
                self._trace = outer
                self._note(Ran(value))
                return value
            case cst.Call():
                return self._call(node, env)
        return self._opaque(node, env)

    def _side(self, node: cst.BaseExpression, env: Mapping[str, Value]) -> Value:
        return self._left(self.expression(node, env))

    def _item(self, node: cst.BaseExpression, at: cst.BaseExpression, env: Mapping[str, Value]) -> Value:
        index, base = self.expression(at, env), self.expression(node, env)
        if isinstance(base, Tuple | Path):
            self._note(Kept(base))  # also what is not chosen was evaluated
        value = item(base, index)
        if isinstance(value, Item) and not isinstance(index, Const):
            self._note(Read(value))
        return value

    def _call(self, node: cst.Call, env: Mapping[str, Value]) -> Value:
        function = self.expression(node.func, env)
        args: list[Value] = []
        keywords: list[tuple[str, Value]] = []
        definition = self._inline(function)
        for argument in node.args:
            value = self.expression(argument.value, env)
            if argument.star == "*" and definition is not None and len(node.args) == 1:
                width = len(definition.params.params) - isinstance(function, Attr)
                args += [item(value, Const(str(position))) for position in range(width)]
            elif argument.star or argument.keyword:
                keywords.append((argument.keyword.value if argument.keyword else argument.star, value))
            else:
                args.append(value)
        if definition is not None and not keywords and self._depth < 4:
            parameters = [p.name.value for p in definition.params.params]
            if isinstance(function, Attr):
                args.insert(0, function.base)
            changed = definition.decorators or definition.asynchronous
            if len(parameters) == len(args) and not changed and takes_plain_arguments(definition):
                self._depth += 1
                try:
                    return self.function(definition, dict(zip(parameters, args, strict=True)))
                finally:
                    self._depth -= 1
        value = call(function, tuple(args), tuple(keywords))
        if isinstance(value, Call):
            self._note(Made(value))
        return value

    def _opaque(self, node: cst.BaseExpression, env: Mapping[str, Value]) -> Value:
        for used in names_in_code(node) & env.keys():
            if env[used] != Name(used):
                raise NotStraightLine(f"`{self._source(node)}`")
        return Opaque(self._source(node))


def names_in_code(node: cst.CSTNode) -> set[str]:
    """Every identifier that occurs in ``node``, attributes included."""
    return {one.value for one in find_in(node, cst.Name)}


def takes_plain_arguments(function: cst.FunctionDef | cst.Lambda) -> bool:
    """Whether all parameters of ``function`` are positional, named, and given by every caller."""
    given = function.params
    others = given.star_kwarg or given.kwonly_params or given.posonly_params or isinstance(given.star_arg, cst.Param)
    return not others and all(one.default is None for one in given.params)


def statements_of(body: cst.BaseSuite) -> Sequence[cst.CSTNode]:
    """Statements of a block, also of one written on the line of its header."""
    if isinstance(body, cst.SimpleStatementSuite):
        return [cst.SimpleStatementLine(body=body.body)]
    return body.body

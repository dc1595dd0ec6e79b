"""Evaluate small functions symbolically, to values that can be compared.

Rules recognise code by meaning, not by spelling. The following two bodies of ``__getitem__`` evaluate to the same
:class:`Value`:

* ``x, y = self.dataset[i]; x = (x - m) / s; return x, y``
* ``sample = self.dataset[i]; return sample[0].sub(m).div(s), sample[1]``

No code is executed.

A function with ``if`` has several paths of execution. Each path is a separate :class:`CodePath`, and the value of a
path contains no conditions. Loops, ``try``, in-place updates and other code with side effects end the evaluation with
:class:`UnmodelledCode`. A rule then reports the code, but does not rewrite the code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import libcst as cst

from chirp_migrate.syntax.module import find_nodes

#: Largest number of statements on a path. The evaluation of a longer path ends with :class:`UnmodelledCode`.
_STATEMENT_LIMIT = 400
#: Largest number of conditions on a path. With more conditions, the evaluation ends with :class:`UnmodelledCode`.
MAX_CONDITIONS = 6

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


class UnmodelledCode(Exception):
    """Raised for code whose value this module does not model. The message names the code."""


class Value:
    """A symbolic value. Each subclass is one kind of expression.

    ``str(value)`` is Python source, with brackets where they may be necessary.
    """

    def __str__(self) -> str:
        return _source(self)

    @property
    def parts(self) -> Sequence[Value]:
        """Return the values that this value directly contains, in order, without the keyword arguments of a call."""
        held = (one if isinstance(one, tuple) else (one,) for one in vars(self).values())
        return [part for one in held for part in one if isinstance(part, Value)]


@dataclass(frozen=True)
class Name(Value):
    """The value that a variable, such as a parameter, has before the evaluated code runs."""

    text: str


@dataclass(frozen=True)
class Const(Value):
    """A literal, stored as its source."""

    source: str


@dataclass(frozen=True)
class OpaqueValue(Value):
    """The value of an expression that this module does not model, stored as its source."""

    source: str


@dataclass(frozen=True)
class Attr(Value):
    """An attribute: ``base.name``."""

    base: Value
    name: str


@dataclass(frozen=True)
class Subscript(Value):
    """A subscript ``base[index]``, which :func:`make_subscript` creates."""

    base: Value
    index: Value


@dataclass(frozen=True)
class Call(Value):
    """A call, which :func:`make_call` creates. The keyword of a starred argument is ``*`` or ``**``."""

    function: Value
    args: tuple[Value, ...]
    keywords: tuple[tuple[str, Value], ...] = ()


@dataclass(frozen=True)
class Operation(Value):
    """An arithmetic operation, a comparison, ``and`` or ``or``; ``symbol`` is the operator."""

    symbol: str
    left: Value
    right: Value


@dataclass(frozen=True)
class Not(Value):
    """A negation: ``not operand``."""

    operand: Value


@dataclass(frozen=True)
class Tuple(Value):
    """A literal tuple."""

    items: tuple[Value, ...]


@dataclass(frozen=True)
class ReturnedValue(Value):
    """The result of an inlined function, if a condition tests the result.

    :class:`Evaluator` inlines functions. ``ReturnedValue(x)`` is not equal to ``x``, so a test of the result does not
    count as a test of ``x``.
    """

    value: Value


@dataclass
class CodePath:
    """One path through code: its result, and the operations on the path.

    Attributes:
        truths: for each value that the path tests, whether the value is true on this path. For the tests ``x is None``
            and ``x is not None``, the entry of ``x`` is True if ``x`` is not None.
        names: the values of all names at the end of the path, by name.
        value: the result of the path.
        tests: the conditions on the path, such as ``x is not None``.
        kept: the values that the path assigns to names, in order, including values that the path overwrites later.
        calls: the calls on the path.
        items: the subscripts that the path reads, except subscripts with a literal index.
        returned: the results of inlined functions, whose bodies were evaluated instead of their calls.
    """

    truths: dict[Value, bool] = field(default_factory=dict)
    names: dict[str, Value] = field(default_factory=dict)
    value: Value = Const("None")
    tests: list[Value] = field(default_factory=list)
    kept: list[Value] = field(default_factory=list)
    calls: list[Value] = field(default_factory=list)
    items: list[Value] = field(default_factory=list)
    returned: list[Value] = field(default_factory=list)

    @property
    def evaluated(self) -> list[Value]:
        """Return all values that the path assigns, and all its calls and subscripts."""
        return [*self.kept, *self.calls, *self.items]


def make_subscript(base: Value, index: Value) -> Value:
    """Return the value ``base[index]``. For a literal tuple and index, the result is the element."""
    match base, index:
        case Tuple(items), Const(position) if position.isdigit() and int(position) < len(items):
            return items[int(position)]
    return Subscript(base, index)


def make_call(function: Value, args: tuple[Value, ...], keywords: tuple[tuple[str, Value], ...] = ()) -> Value:
    """Return the value of a call. A call of an arithmetic method, such as ``sub``, becomes an ``Operation``."""
    match function, args, keywords:
        case Attr(base, method), (other,), () if method in _ARITHMETIC_METHODS:
            return Operation(_ARITHMETIC_METHODS[method], base, other)
        case Attr(Name("torch"), method), (left, right), () if method in _ARITHMETIC_METHODS:
            return Operation(_ARITHMETIC_METHODS[method], left, right)
        case Attr(Operation(symbol) as base, method), (other,), () if method[:-1] in _ARITHMETIC_METHODS:
            # The method changes a temporary object in place, so no other code can notice the change.
            if method.endswith("_") and symbol in _OPERATORS.values():
                return Operation(_ARITHMETIC_METHODS[method[:-1]], base, other)
    return Call(function, args, keywords)


def _source(value: Value) -> str:
    match value:
        case Name(text) | Const(text) | OpaqueValue(text):
            return text
        case Attr(base, name):
            return f"{_operand(base)}.{name}"
        case Subscript(base, index):
            return f"{_operand(base)}[{index}]"
        case Call(function, args, keywords):
            texts = [*map(str, args), *(f"{k}{v}" if k.startswith("*") else f"{k}={v}" for k, v in keywords)]
            return f"{_operand(function)}({', '.join(texts)})"
        case Operation(symbol, left, right):
            return f"{_operand(left)} {symbol} {_operand(right)}"
        case Not(operand):
            return f"not {_operand(operand)}"
        case Tuple(items):
            return f"({', '.join(map(str, items))}{',' if len(items) == 1 else ''})"
        case ReturnedValue(value):
            return _source(value)
    raise TypeError(f"a value of type {type(value).__name__} cannot be written as source code")


def _operand(part: Value) -> str:
    return str(part) if isinstance(part, Name | Const | Attr | Subscript | Call | Tuple) else f"({part})"


Inline = Callable[[Value], "cst.FunctionDef | None"]


class Evaluator:
    """Evaluate function bodies symbolically.

    Args:
        source: function that returns the source text of a node, for values that are not modelled.
        inline: function that returns the definition of a called function, such as a method of the same class, or None.
            The evaluator evaluates the body of this definition instead of the call. If the function returns None, the
            value of the call is a :class:`Call`. Without the argument ``inline``, the value of every call is a
            :class:`Call`, and the evaluator evaluates the bodies of no called functions.
    """

    def __init__(self, source: Callable[[cst.CSTNode], str], inline: Inline | None = None) -> None:
        self._source = source
        self._inline = inline or (lambda function: None)
        self._path = CodePath()
        #: The paths that are not evaluated yet: for each path, whether each of its conditions is true.
        self._pending: list[dict[Value, bool]] = []
        self._budget = 0
        self._depth = 0

    def paths(
        self,
        statements: Sequence[cst.CSTNode],
        env: Mapping[str, Value],
        result: cst.BaseExpression | None = None,
    ) -> list[CodePath]:
        """Return every path through ``statements``, each with the value of its ``return`` statement or of ``result``.

        Args:
            statements: the statements to evaluate.
            env: the values of names before the statements, by name.
            result: an expression to evaluate after the statements. The value of the path is then the value of
                ``result``. By default, the value of the path is the value of the ``return`` statement.

        Raises:
            UnmodelledCode: the statements cannot be evaluated, or contain a ``return`` although ``result`` is given.
        """
        followed: list[CodePath] = []
        self._pending = [{}]
        while self._pending:
            path = self._path = CodePath(self._pending.pop(), dict(env))
            self._budget = _STATEMENT_LIMIT
            value = self._run(statements, path.names)
            if value is not None and result is not None:
                raise UnmodelledCode("a return statement")
            if result is not None:
                value = self.expression(result, path.names)
            path.value = value or Const("None")
            followed.append(path)
        return followed

    def _run(self, statements: Sequence[cst.CSTNode], env: dict[str, Value]) -> Value | None:
        """Return the value that ``statements`` return; ``None`` if the statements end without ``return``."""
        for statement in statements:
            self._budget -= 1
            if self._budget < 0:
                raise UnmodelledCode("too many statements")
            value = None
            if isinstance(statement, cst.SimpleStatementLine):
                for small in statement.body:
                    if isinstance(small, cst.Return):
                        return self.expression(small.value, env) if small.value else Const("None")
                    self._assign(small, env)
            elif isinstance(statement, cst.If):
                holds = self._holds_on_path(statement.test, env)
                value = self._run(block_statements(statement.body) if holds else else_statements(statement), env)
            else:
                raise UnmodelledCode(f"a {type(statement).__name__.lower()} statement")
            if value is not None:
                return value
        return None

    def _holds_on_path(self, test: cst.BaseExpression, env: Mapping[str, Value]) -> bool:
        """Return whether a test is true on the current path.

        If the test may also be false, the evaluator later evaluates another path, on which the test is false.
        """
        condition = self.expression(test, env)
        self._path.tests.append(condition)
        return self._holds(condition)

    def _holds(self, condition: Value) -> bool:
        match condition:
            case Not(operand):
                return not self._holds(operand)
            case Operation("and", left, right):
                return self._holds(left) and self._holds(right)
            case Operation("or", left, right):
                return self._holds(left) or self._holds(right)
            case Operation("is not", tested, Const("None")):
                return self._is_true(tested)
            case Operation("is", tested, Const("None")):
                return not self._is_true(tested)
        return self._is_true(condition)

    def _is_true(self, value: Value) -> bool:
        truths = self._path.truths
        value = ReturnedValue(value) if value in self._path.returned else value
        if value not in truths:
            if len(truths) == MAX_CONDITIONS:
                raise UnmodelledCode("too many conditions")
            self._pending.append({**truths, value: False})
            truths[value] = True
        return truths[value]

    def _assign(self, small: cst.CSTNode, env: dict[str, Value]) -> None:
        match small:
            case cst.Pass() | cst.Expr(value=cst.SimpleString() | cst.ConcatenatedString()):
                return
            case cst.AnnAssign(target=target, value=cst.BaseExpression() as given):
                targets = [target]
            case cst.Assign(value=given):
                targets = [one.target for one in small.targets]
            case _:
                raise UnmodelledCode(f"`{self._source(small).strip()}`")
        value = self.expression(given, env)
        self._path.kept.append(value)
        for target in targets:
            self._bind(target, value, env)

    def _bind(self, target: cst.BaseExpression, value: Value, env: dict[str, Value]) -> None:
        if isinstance(target, cst.Name):
            env[target.value] = value
        elif isinstance(target, cst.Tuple | cst.List) and all(type(e) is cst.Element for e in target.elements):
            for position, element in enumerate(target.elements):
                self._bind(element.value, make_subscript(value, Const(str(position))), env)
        else:
            raise UnmodelledCode(f"an assignment to `{self._source(target)}`")

    def expression(self, node: cst.BaseExpression, env: Mapping[str, Value]) -> Value:
        """Return the value of an expression. The value of an unsupported expression is an :class:`OpaqueValue`.

        Raises:
            UnmodelledCode: an unsupported expression contains a variable that the code has assigned, so the value
                depends on more than the source text of the expression.
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
            case cst.Tuple(elements=elements) if all(type(element) is cst.Element for element in elements):
                return Tuple(tuple(self.expression(element.value, env) for element in elements))
            case cst.BinaryOperation(left=left, operator=operator, right=right) if type(operator) in _OPERATORS:
                return Operation(_OPERATORS[type(operator)], self.expression(left, env), self.expression(right, env))
            case cst.BooleanOperation(left=left, operator=operator, right=right):
                symbol = "and" if isinstance(operator, cst.And) else "or"
                return Operation(symbol, self.expression(left, env), self.expression(right, env))
            case cst.UnaryOperation(operator=cst.Not(), expression=operand):
                return Not(self.expression(operand, env))
            case cst.Comparison(left=left, comparisons=[cst.ComparisonTarget(operator=operator, comparator=right)]):
                if type(operator) in _COMPARISONS:
                    return Operation(
                        _COMPARISONS[type(operator)], self.expression(left, env), self.expression(right, env)
                    )
            case cst.IfExp(test=test, body=body, orelse=orelse):
                return self.expression(body if self._holds_on_path(test, env) else orelse, env)
            case cst.Call():
                return self._call(node, env)
        return self._opaque(node, env)

    def _item(self, node: cst.BaseExpression, at: cst.BaseExpression, env: Mapping[str, Value]) -> Value:
        index, base = self.expression(at, env), self.expression(node, env)
        if isinstance(base, Tuple):
            self._path.kept.append(base)  # the path also evaluates the other elements of the tuple
        value = make_subscript(base, index)
        if isinstance(value, Subscript) and not isinstance(index, Const):
            self._path.items.append(value)
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
                args += [make_subscript(value, Const(str(position))) for position in range(width)]
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
                returned = self._run(block_statements(definition.body), dict(zip(parameters, args, strict=True)))
                self._depth -= 1
                self._path.returned.append(returned or Const("None"))
                return self._path.returned[-1]
        value = make_call(function, tuple(args), tuple(keywords))
        if isinstance(value, Call):
            self._path.calls.append(value)
        return value

    def _opaque(self, node: cst.BaseExpression, env: Mapping[str, Value]) -> Value:
        for used in names_in_code(node) & env.keys():
            if env[used] != Name(used):
                raise UnmodelledCode(f"`{self._source(node)}`")
        return OpaqueValue(self._source(node))


def names_in_code(node: cst.CSTNode) -> set[str]:
    """Return every identifier and attribute name that occurs in ``node``."""
    return {name.value for name in find_nodes(node, cst.Name)}


def takes_plain_arguments(function: cst.FunctionDef | cst.Lambda) -> bool:
    """Return whether ``function`` has only plain parameters: no defaults, ``*``, ``/``, ``*args`` or ``**kwargs``."""
    given = function.params
    others = given.star_kwarg or given.kwonly_params or given.posonly_params or isinstance(given.star_arg, cst.Param)
    return not others and all(parameter.default is None for parameter in given.params)


def block_statements(suite: cst.BaseSuite) -> Sequence[cst.CSTNode]:
    """Return the statements of a block, also of a block on the line of its header, as in ``if x: return y``."""
    if isinstance(suite, cst.SimpleStatementSuite):
        return [cst.SimpleStatementLine(body=suite.body)]
    return suite.body


def else_statements(if_statement: cst.If) -> Sequence[cst.CSTNode]:
    """Return the statements of the ``else`` part of an ``if``.

    For an ``elif``, the only statement is the ``cst.If`` node of the ``elif``.
    """
    other = if_statement.orelse
    return [other] if isinstance(other, cst.If) else block_statements(other.body) if other is not None else ()

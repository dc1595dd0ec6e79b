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

import libcst as cst

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


@dataclass(frozen=True)
class Value:
    """A symbolic value: ``kind`` and its parts (values, names or literals).

    Kinds: ``name(n)``, ``const(source)``, ``attr(base, n)``, ``item(base, index)``, ``call(function, args, keywords)``,
    ``op(symbol, a, b)``, ``compare(symbol, a, b)``, ``bool(symbol, a, b)``, ``not(a)``, ``tuple(items)``,
    ``if(condition, then, otherwise)``, ``opaque(source)``; of a traced evaluation also ``path(value, trace)``, what a
    function gives and what it did on the way: ``kept(value)`` in a name, ``read(item)``, ``made(call)`` and
    ``ran(path)``.
    """

    kind: str
    parts: tuple[object, ...]

    def __str__(self) -> str:
        return render(self)


def name(text: str) -> Value:
    """The value of a name."""
    return Value("name", (text,))


def const(source: str) -> Value:
    """A literal, by its source text."""
    return Value("const", (source,))


def attr(base: Value, attribute: str) -> Value:
    """Attribute access."""
    return Value("attr", (base, attribute))


def item(base: Value, index: Value) -> Value:
    """Subscript access; an item of a literal tuple is that item."""
    if base.kind == "tuple" and index.kind == "const":
        items = base.parts[0]
        assert isinstance(items, tuple)
        position = str(index.parts[0])
        if position.isdigit() and int(position) < len(items):
            chosen = items[int(position)]
            assert isinstance(chosen, Value)
            return chosen
    return Value("item", (base, index))


def call(function: Value, args: tuple[Value, ...], keywords: tuple[tuple[str, Value], ...] = ()) -> Value:
    """A call; arithmetic spelled as a method is arithmetic."""
    if function.kind == "attr" and not keywords:
        base, method = function.parts
        assert isinstance(base, Value) and isinstance(method, str)
        if method in _ARITHMETIC_METHODS and len(args) == 1:
            return Value("op", (_ARITHMETIC_METHODS[method], base, args[0]))
        if base == name("torch") and method in _ARITHMETIC_METHODS and len(args) == 2:
            return Value("op", (_ARITHMETIC_METHODS[method], args[0], args[1]))
        if method.endswith("_") and method[:-1] in _ARITHMETIC_METHODS and len(args) == 1 and base.kind == "op":
            # In place on a temporary: nobody else sees it.
            return Value("op", (_ARITHMETIC_METHODS[method[:-1]], base, args[0]))
    return Value("call", (function, args, keywords))


def render(value: Value) -> str:
    """Python source for ``value``, parenthesised where precedence might bite."""
    kind, parts = value.kind, value.parts
    if kind in ("name", "const"):
        return str(parts[0])
    if kind == "opaque":
        return str(parts[0])
    if kind == "attr":
        return f"{_operand(parts[0])}.{parts[1]}"
    if kind == "item":
        return f"{_operand(parts[0])}[{parts[1]}]"
    if kind == "call":
        function, args, keywords = parts
        assert isinstance(args, tuple) and isinstance(keywords, tuple)
        texts = [str(a) for a in args]
        texts += [f"{k}{v}" if k.startswith("*") else f"{k}={v}" for k, v in keywords]
        return f"{_operand(function)}({', '.join(texts)})"
    if kind in ("op", "compare", "bool"):
        return f"{_operand(parts[1])} {parts[0]} {_operand(parts[2])}"
    if kind == "not":
        return f"not {_operand(parts[0])}"
    if kind == "tuple":
        items = parts[0]
        assert isinstance(items, tuple)
        return f"({', '.join(map(str, items))}{',' if len(items) == 1 else ''})"
    assert kind == "if"
    return f"{_operand(parts[1])} if {_operand(parts[0])} else {_operand(parts[2])}"


def _operand(part: object) -> str:
    assert isinstance(part, Value)
    text = render(part)
    return text if part.kind in ("name", "const", "attr", "item", "call", "tuple") else f"({text})"


def names_in(value: Value) -> set[str]:
    """Words that ``value`` mentions: names, and every identifier in the source of what is not modelled."""
    found: set[str] = set()
    pending: list[object] = [value]
    while pending:
        part = pending.pop()
        if isinstance(part, tuple):
            pending.extend(part)
        elif isinstance(part, Value) and part.kind in ("name", "opaque"):
            found.update(re.findall(r"[^\W\d]\w*", str(part.parts[0])))
        elif isinstance(part, Value):
            pending.extend(part.parts)
    return found


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
        self._trace: list[Value] = []  # of the function being evaluated
        self._inline = inline or (lambda function: None)
        self._budget = _STATEMENT_LIMIT
        self._depth = 0

    @property
    def trace(self) -> Sequence[Value]:
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
        self._note("ran", value)
        return value

    def _note(self, what: str, value: Value) -> None:
        if self._traced:
            self._trace.append(Value(what, (value,)))

    def _left(self, value: Value) -> Value:
        """What a path through a function gives."""
        return Value("path", (value, tuple(self._trace))) if self._traced else value

    def _either(self, condition: Value, then: Callable[[], Value], otherwise: Callable[[], Value]) -> Value:
        before = self._trace
        self._trace = list(before)
        first = then()
        self._trace = list(before)
        second = otherwise()
        self._trace = before
        return Value("if", (condition, first, second)) if self._traced else _if(condition, first, second)

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
                        return self._left(self.expression(small.value, env) if small.value else const("None"))
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
        return self._left(const("None"))

    def _assign(self, small: cst.CSTNode, env: dict[str, Value]) -> None:
        if isinstance(small, cst.Pass):
            return
        if isinstance(small, cst.Expr) and isinstance(small.value, cst.SimpleString | cst.ConcatenatedString):
            return
        if isinstance(small, cst.AnnAssign) and small.value is not None:
            value = self.expression(small.value, env)
            self._note("kept", value)
            self._bind(small.target, value, env)
            return
        if not isinstance(small, cst.Assign):
            raise NotStraightLine(f"`{self._source(small).strip()}`")
        value = self.expression(small.value, env)
        self._note("kept", value)
        for target in small.targets:
            self._bind(target.target, value, env)

    def _bind(self, target: cst.BaseExpression, value: Value, env: dict[str, Value]) -> None:
        if isinstance(target, cst.Name):
            env[target.value] = value
        elif isinstance(target, cst.Tuple | cst.List) and all(type(e) is cst.Element for e in target.elements):
            for position, element in enumerate(target.elements):
                self._bind(element.value, item(value, const(str(position))), env)
        else:
            raise NotStraightLine(f"an assignment to `{self._source(target)}`")

    def expression(self, node: cst.BaseExpression, env: Mapping[str, Value]) -> Value:
        """Value of an expression; what is not modelled becomes ``opaque`` by its source text.

        Raises:
            NotStraightLine: when an opaque part mentions a name that was assigned before (its value would be lost).
        """
        if isinstance(node, cst.Name):
            return env.get(
                node.value, const(node.value) if node.value in ("None", "True", "False") else name(node.value)
            )
        if isinstance(node, cst.Integer | cst.Float | cst.SimpleString):
            return const(self._source(node))
        if isinstance(node, cst.Attribute):
            return attr(self.expression(node.value, env), node.attr.value)
        if isinstance(node, cst.Subscript) and len(node.slice) == 1 and isinstance(node.slice[0].slice, cst.Index):
            index, base = self.expression(node.slice[0].slice.value, env), self.expression(node.value, env)
            if base.kind in ("tuple", "path"):
                self._note("kept", base)  # also what is not chosen was evaluated
            value = item(base, index)
            if value.kind == "item" and index.kind != "const":
                self._note("read", value)
            return value
        if isinstance(node, cst.Tuple) and all(type(e) is cst.Element for e in node.elements):
            return Value("tuple", (tuple(self.expression(e.value, env) for e in node.elements),))
        if isinstance(node, cst.BinaryOperation) and type(node.operator) in _OPERATORS:
            left, right = self.expression(node.left, env), self.expression(node.right, env)
            return Value("op", (_OPERATORS[type(node.operator)], left, right))
        if isinstance(node, cst.BooleanOperation):
            symbol = "and" if isinstance(node.operator, cst.And) else "or"
            return Value("bool", (symbol, self.expression(node.left, env), self.expression(node.right, env)))
        if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Not):
            return Value("not", (self.expression(node.expression, env),))
        if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Minus):
            return (
                const(self._source(node))
                if isinstance(node.expression, cst.Integer | cst.Float)
                else self._opaque(node, env)
            )
        if isinstance(node, cst.Comparison) and len(node.comparisons) == 1:
            target = node.comparisons[0]
            if type(target.operator) in _COMPARISONS:
                left, right = self.expression(node.left, env), self.expression(target.comparator, env)
                return Value("compare", (_COMPARISONS[type(target.operator)], left, right))
        if isinstance(node, cst.IfExp):
            condition = self.expression(node.test, env)
            outer = self._trace
            self._trace = []
            sides = [
                partial(lambda side: self._left(self.expression(side, env)), one) for one in (node.body, node.orelse)
            ]
            value = self._either(condition, *sides)
            self._trace = outer
            self._note("ran", value)
            return value
        if isinstance(node, cst.Call):
            return self._call(node, env)
        return self._opaque(node, env)

    def _call(self, node: cst.Call, env: Mapping[str, Value]) -> Value:
        function = self.expression(node.func, env)
        args: list[Value] = []
        keywords: list[tuple[str, Value]] = []
        definition = self._inline(function)
        for argument in node.args:
            value = self.expression(argument.value, env)
            if argument.star == "*" and definition is not None and len(node.args) == 1:
                width = len(definition.params.params) - (function.kind == "attr")
                args += [item(value, const(str(position))) for position in range(width)]
            elif argument.star or argument.keyword:
                keywords.append((argument.keyword.value if argument.keyword else argument.star, value))
            else:
                args.append(value)
        if definition is not None and not keywords and self._depth < 4:
            parameters = [p.name.value for p in definition.params.params]
            if function.kind == "attr":
                receiver = function.parts[0]
                assert isinstance(receiver, Value)
                args.insert(0, receiver)
            changed = definition.decorators or definition.asynchronous
            if len(parameters) == len(args) and not changed and takes_plain_arguments(definition):
                self._depth += 1
                try:
                    return self.function(definition, dict(zip(parameters, args, strict=True)))
                finally:
                    self._depth -= 1
        value = call(function, tuple(args), tuple(keywords))
        if value.kind == "call":
            self._note("made", value)
        return value

    def _opaque(self, node: cst.BaseExpression, env: Mapping[str, Value]) -> Value:
        mentioned = _NameCollector()
        node.visit(mentioned)
        for used in mentioned.names & env.keys():
            if env[used] != name(used):
                raise NotStraightLine(f"`{self._source(node)}`")
        return Value("opaque", (self._source(node),))


class _NameCollector(cst.CSTVisitor):
    def __init__(self) -> None:
        self.names: set[str] = set()

    def visit_Name(self, node: cst.Name) -> None:
        self.names.add(node.value)


def names_in_code(node: cst.CSTNode) -> set[str]:
    """Every identifier that occurs in ``node``, attributes included."""
    collector = _NameCollector()
    node.visit(collector)
    return collector.names


def _if(condition: Value, then: Value, otherwise: Value) -> Value:
    return then if then == otherwise else Value("if", (condition, then, otherwise))


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

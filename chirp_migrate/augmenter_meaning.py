"""Whether a class draws the same masks or the same noise as the shipped transform, read from its source.

The control flow may be laid out in any way; what must hold are the facts that fix the distribution: one gate
``random.random()`` against ``p``; every width drawn uniformly from 0 to a parameter (at most the size of the axis);
every start drawn uniformly from the positions that leave room; the stretch overwritten with ``mask_value``; as many
times as the count says; and no other source of randomness.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

MASK_PARAMETERS = (
    "time_mask_param",
    "freq_mask_param",
    "num_time_masks",
    "num_freq_masks",
    "mask_value",
    "p",
)
_AXES = {"time_mask_param": ("num_time_masks", -1), "freq_mask_param": ("num_freq_masks", -2)}
_HARMLESS_CALLS = frozenset(
    {"range", "min", "max", "len", "int", "super", "isinstance", "ValueError", "super().__init__"}
    | {"clone", "dim", "size", "squeeze", "unsqueeze", "ndimension"}
)


def masks_like_spec_augment(class_source: str) -> str | None:
    """``None`` when the class masks as the shipped ``SpecAugment`` does, else the reason why that is not certain."""
    tree = ast.parse(class_source).body[0]
    assert isinstance(tree, ast.ClassDef)
    widths: dict[tuple[str, str], str] = {}
    starts: dict[tuple[str, str], str] = {}
    gates = 0
    for function in _functions(tree):
        sizes = _sizes(function)
        known = _assigned_once(function)
        if any("self." in test.replace("self.p", "") for test in _tests(function)):
            return "it depends on more than its parameters"
        for node in ast.walk(function):
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func)
            if called == "random.random":
                gates += 1
            elif called == "random.randint":
                continue
            elif called.rpartition(".")[2] not in _HARMLESS_CALLS and not _is_own_method(tree, called):
                return f"it calls `{called}`"
        for target, low, high in _draws(function):
            if isinstance(high, ast.Name) and high.id in known and high.id not in sizes:
                high = known[high.id]
            if ast.unparse(low) != "0":
                return f"`{target}` is not drawn from 0"
            width = _width_parameter(high, sizes)
            if width is not None:
                widths[function.name, target] = width
                continue
            room = _room(high, sizes)
            if room is None or (function.name, room) not in widths:
                return f"`{target}` is drawn from a range this tool does not know"
            starts[function.name, target] = room
        problem = _check_masks(function, widths, starts)
        if problem is not None:
            return problem
    if gates != 1 or not _has_gate(tree):
        return "it is not gated by one `random.random() > self.p`"
    if set(widths.values()) != set(_AXES):
        return "it does not mask both time and frequency"
    return _check_counts(tree, widths)


def adds_noise_like_gaussian_noise(class_source: str) -> str | None:
    """``None`` when the class adds noise as the shipped ``GaussianNoise`` does, else the reason why not."""
    tree = ast.parse(class_source).body[0]
    assert isinstance(tree, ast.ClassDef)
    function = next((f for f in _functions(tree) if f.name in ("forward", "__call__")), None)
    if function is None or len(function.args.args) != 2:
        return "it has no `forward(x)`"
    x = function.args.args[1].arg
    names: dict[str, ast.expr] = {}
    returned: list[str] = []
    for node in ast.walk(function):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            allowed = {"random.random", "torch.randn_like", "torch.clamp", "torch.randn", "super"}
            if called not in allowed and not called.endswith((".clamp", ".clone")):
                return f"it calls `{called}`"
    if not _has_gate(tree) or ast.unparse(tree).count("random.random()") != 1:
        return "it is not gated by one `random.random() > self.p`"
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            if node.targets[0].id in names:
                return "it computes its result in steps this tool does not follow"
            names[node.targets[0].id] = node.value
        elif isinstance(node, ast.Return) and node.value is not None:
            returned.append(_expanded(node.value, names, x))
    noise = [f"torch.randn_like({x}) * self.std", f"self.std * torch.randn_like({x})"]
    sums = {f"{x} + {n}" for n in noise} | {f"{n} + {x}" for n in noise}
    results = {
        text
        for s in sums
        for zero, one in (("0", "1"), ("0.0", "1.0"))
        for text in (
            f"torch.clamp({s}, {zero}, {one})",
            f"torch.clamp({s}, min={zero}, max={one})",
            f"({s}).clamp({zero}, {one})",
            f"({s}).clamp(min={zero}, max={one})",
        )
    }
    if not returned or any(text != x and text not in results for text in returned):
        return "its result is not `clamp(x + randn_like(x) * std, 0, 1)`"
    return None


def _expanded(value: ast.expr, names: dict[str, ast.expr], argument: str) -> str:
    class Expand(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            if node.id == argument or node.id not in names:
                return node
            return self.visit(names[node.id])  # type: ignore[no-any-return]

    copied = ast.parse(ast.unparse(value), mode="eval").body
    return ast.unparse(Expand().visit(copied))


def _functions(tree: ast.ClassDef) -> list[ast.FunctionDef]:
    return [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name != "__init__"]


def _is_own_method(tree: ast.ClassDef, called: str) -> bool:
    return called.startswith("self.") and any(f"self.{f.name}" == called for f in _functions(tree))


def _draws(function: ast.FunctionDef) -> Iterator[tuple[str, ast.expr, ast.expr]]:
    """Names assigned from ``random.randint(low, high)``, in order of the text."""
    found = [
        node
        for node in ast.walk(function)
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and ast.unparse(node.value.func) == "random.randint"
    ]
    for node in sorted(found, key=lambda n: n.lineno):
        assert isinstance(node.value, ast.Call)
        if len(node.targets) == 1 and isinstance(node.targets[0], ast.Name) and len(node.value.args) == 2:
            yield node.targets[0].id, node.value.args[0], node.value.args[1]


def _tests(function: ast.FunctionDef) -> list[str]:
    return [ast.unparse(node.test) for node in ast.walk(function) if isinstance(node, ast.If | ast.IfExp | ast.While)]


def _assigned_once(function: ast.FunctionDef) -> dict[str, ast.expr]:
    """Names with a single assignment in the function, and what they are assigned."""
    values: dict[str, list[ast.expr]] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    values.setdefault(target.id, []).append(node.value)
    return {name: found[0] for name, found in values.items() if len(found) == 1}


def _sizes(function: ast.FunctionDef) -> dict[str, int]:
    """Names that hold the size of the time axis (-1) or the frequency axis (-2)."""
    sizes: dict[str, int] = {}
    for node in ast.walk(function):
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            continue
        target, value = node.targets[0], node.value
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            pairs = list(zip(target.elts, value.elts, strict=True))
        else:
            pairs = [(target, value)]
        for one, source in pairs:
            axis = _axis_of_size(source)
            if isinstance(one, ast.Name) and axis is not None:
                sizes[one.id] = axis
        if isinstance(target, ast.Tuple) and ast.unparse(value).endswith((".shape", ".size()", ".shape[-2:]")):
            for position, element in enumerate(target.elts):
                if isinstance(element, ast.Name) and position - len(target.elts) in (-1, -2):
                    sizes[element.id] = position - len(target.elts)
    return sizes


def _axis_of_size(value: ast.expr) -> int | None:
    text = ast.unparse(value)
    for axis in (-1, -2):
        if text.endswith((f".shape[{axis}]", f".size({axis})")):
            return axis
    return None


def _size_axis(value: ast.expr, sizes: dict[str, int]) -> int | None:
    return sizes.get(value.id) if isinstance(value, ast.Name) else _axis_of_size(value)


def _width_parameter(high: ast.expr, sizes: dict[str, int]) -> str | None:
    """The mask parameter that bounds a width: ``self.P`` or ``min(self.P, size)``."""
    candidates = [high]
    if isinstance(high, ast.Call) and ast.unparse(high.func) == "min" and len(high.args) == 2:
        candidates = list(high.args)
    parameters = [a.attr for a in candidates if isinstance(a, ast.Attribute) and a.attr in _AXES]
    if len(parameters) != 1:
        return None
    axis = _AXES[parameters[0]][1]
    others = [a for a in candidates if not (isinstance(a, ast.Attribute) and a.attr in _AXES)]
    return parameters[0] if all(_size_axis(a, sizes) == axis for a in others) else None


def _room(high: ast.expr, sizes: dict[str, int]) -> str | None:
    """The width whose room bounds a start: ``size - width`` or ``max(0, size - width)``."""
    if isinstance(high, ast.Call) and ast.unparse(high.func) == "max" and len(high.args) == 2:
        rest = [a for a in high.args if ast.unparse(a) != "0"]
        if len(rest) != 1:
            return None
        high = rest[0]
    if isinstance(high, ast.BinOp) and isinstance(high.op, ast.Sub) and isinstance(high.right, ast.Name):
        return high.right.id if _size_axis(high.left, sizes) is not None else None
    return None


def _check_masks(
    function: ast.FunctionDef, widths: dict[tuple[str, str], str], starts: dict[tuple[str, str], str]
) -> str | None:
    masked: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.AugAssign):
            return "it updates values in place"
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Subscript):
            continue
        if ast.unparse(node.value) != "self.mask_value":
            return "it writes something other than `self.mask_value`"
        index = node.targets[0].slice
        parts = list(index.elts) if isinstance(index, ast.Tuple) else [index]
        stretches = [
            (p, part) for p, part in enumerate(parts) if isinstance(part, ast.Slice) and part.lower is not None
        ]
        if len(stretches) != 1:
            return "it masks something other than one stretch"
        position, stretch = stretches[0]
        assert isinstance(stretch, ast.Slice) and stretch.lower is not None
        start = ast.unparse(stretch.lower)
        width = starts.get((function.name, start))
        upper = ast.unparse(stretch.upper) if stretch.upper is not None else ""
        if width is None or upper not in (f"{start} + {width}", f"{width} + {start}"):
            return "a masked stretch is not `start : start + width`"
        if _AXES[widths[function.name, width]][1] != position - len(parts):
            return "a mask lies on another axis than its parameter says"
        masked.add(width)
    drawn = {name for owner, name in widths if owner == function.name}
    return None if masked == drawn else "a drawn width is not used"


def _has_gate(tree: ast.ClassDef) -> bool:
    gates = (
        "random.random() > self.p",
        "random.random() >= self.p",
        "random.random() < self.p",
        "random.random() <= self.p",
    )
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) in gates:
            returns_input = len(node.body) == 1 and isinstance(node.body[0], ast.Return)
            return returns_input == (">" in ast.unparse(node.test))
    return False


def _check_counts(tree: ast.ClassDef, widths: dict[tuple[str, str], str]) -> str | None:
    """Every width is drawn (or its method called) in a loop over the count that belongs to it, and no other loop."""
    for (owner, target), parameter in widths.items():
        count = _AXES[parameter][0]
        function = next(f for f in _functions(tree) if f.name == owner)
        loops = _loops_around(function, lambda n, t=target: _assigns(n, t))
        callers = [f for f in _functions(tree) if f"self.{owner}(" in ast.unparse(f)]
        for caller in callers:
            loops += _loops_around(caller, lambda n, o=owner: f"self.{o}(" in ast.unparse(n))
        if loops != [f"range(self.{count})"]:
            return f"masks are not drawn once for each of `{count}`"
    return None


def _assigns(node: ast.AST, target: str) -> bool:
    return any(
        isinstance(n, ast.Assign)
        and isinstance(n.targets[0], ast.Name)
        and n.targets[0].id == target
        and "randint" in ast.unparse(n.value)
        for n in ast.walk(node)
    )


def _loops_around(function: ast.FunctionDef, contains: object) -> list[str]:
    assert callable(contains)
    return [
        ast.unparse(node.iter) if isinstance(node, ast.For) else "while"
        for node in ast.walk(function)
        if isinstance(node, ast.For | ast.While) and contains(node)
    ]

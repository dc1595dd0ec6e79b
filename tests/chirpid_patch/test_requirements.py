"""The runtime imports the standard library, PyTorch and NumPy; it works without every other package."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import modules_of

import chirpid_patch

RUNTIME = Path(chirpid_patch.__file__).parent
REQUIRED = {*sys.stdlib_module_names, "chirpid_patch", "numpy", "torch"}
#: Packages that the runtime uses where they are installed.
OPTIONAL = {"PIL", "cloudpickle", "psutil"}


def imported(node: ast.AST, *, is_guarded: bool = False) -> Iterator[tuple[str, bool]]:
    """Yield the name of each imported package, and whether the module can be imported without that package."""
    match node:
        case ast.Import(names=names):
            yield from ((one.name.partition(".")[0], is_guarded) for one in names)
        case ast.ImportFrom(module=str(module), level=0):
            yield module.partition(".")[0], is_guarded
        case ast.If(test=ast.Name(id="TYPE_CHECKING"), orelse=statements):
            for child in statements:
                yield from imported(child, is_guarded=is_guarded)
        case _:
            is_guarded |= isinstance(node, ast.Try | ast.FunctionDef | ast.AsyncFunctionDef)
            for child in ast.iter_child_nodes(node):
                yield from imported(child, is_guarded=is_guarded)


@pytest.mark.parametrize("path", modules_of(RUNTIME), ids=lambda path: path.relative_to(RUNTIME).as_posix())
def test_a_module_needs_no_other_package(path: Path) -> None:
    for package, is_guarded in imported(ast.parse(path.read_bytes())):
        assert package in REQUIRED or (is_guarded and package in OPTIONAL), package

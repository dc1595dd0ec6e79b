"""What can be imported from the package itself."""

from __future__ import annotations

import sys
from importlib import import_module

import pytest

import chirpid_patch


@pytest.mark.parametrize("name", chirpid_patch.__all__)
def test_every_name_is_there_without_a_warning(name: str, recwarn: pytest.WarningsRecorder) -> None:
    assert getattr(chirpid_patch, name) is not None
    assert name in dir(chirpid_patch) and not [one for one in recwarn if one.category is DeprecationWarning]


@pytest.mark.parametrize(("name", "module"), chirpid_patch._MOVED.items())
def test_a_name_that_moved_is_still_found_and_says_where_it_is(name: str, module: str) -> None:
    place = f"chirpid_patch.{module}"
    with pytest.warns(DeprecationWarning, match=f"import it from {place}"):
        assert getattr(chirpid_patch, name) is getattr(import_module(place), name)


@pytest.mark.parametrize(
    ("module", "name"), [("advice", "handle_oom_errors"), ("diagnosis", "diagnose_dataloader_speed")]
)
def test_a_module_that_moved_is_still_found_and_says_where_it_is(
    monkeypatch: pytest.MonkeyPatch, module: str, name: str
) -> None:
    for imported in ("chirpid_patch.tune", f"chirpid_patch.tune.{module}"):
        monkeypatch.delitem(sys.modules, imported, raising=False)
    with pytest.warns(DeprecationWarning, match=r"import from chirpid_patch\.loader_speed"):
        assert getattr(import_module(f"chirpid_patch.tune.{module}"), name) is getattr(chirpid_patch, name)


def test_a_name_that_never_was_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'DataLoader'"):
        chirpid_patch.DataLoader  # noqa: B018

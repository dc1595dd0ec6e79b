"""What can be imported from the package itself."""

from __future__ import annotations

import pytest

import chirpid_patch


@pytest.mark.parametrize("name", chirpid_patch.__all__)
def test_every_name_is_there(name: str) -> None:
    assert getattr(chirpid_patch, name) is not None
    assert name in dir(chirpid_patch)


def test_a_name_that_never_was_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'DataLoader'"):
        chirpid_patch.DataLoader  # noqa: B018

"""Packages whose names are imported on first use: each lists its names, and says of others what they may mean."""

import importlib
from pathlib import Path

import pytest

import rllib

ROOT = Path(rllib.__file__).parent
PACKAGES = [
    ".".join(("rllib", *path.parent.relative_to(ROOT).parts))
    for path in sorted(ROOT.rglob("__init__.py"))
    if "\n_LAZY = " in path.read_text()
]


@pytest.mark.parametrize("package", PACKAGES)
def test_a_lazy_package_has_all_of_its_names_and_suggests_them(package):
    module = importlib.import_module(package)
    names = set(module.__all__)
    assert names <= set(dir(module)) and len(PACKAGES) > 6
    longest = max(module._LAZY, key=len)
    for slip in (longest + "x", longest[:-1]):
        with pytest.raises(
            AttributeError, match=rf"module '{package}' has no attribute '{slip}'. Did you mean .*{longest}"
        ):
            getattr(module, slip)
        with pytest.raises(
            ImportError, match=rf"cannot import name '{slip}' from '{package}'. Did you mean .*{longest}"
        ):
            exec(f"from {package} import {slip}")
    assert getattr(module, longest) is vars(module)[longest]

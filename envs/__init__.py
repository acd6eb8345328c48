"""`load(name)` gives the domain of that name; the module behind it is imported only then."""

from importlib import import_module

from envs.base import Domain

NAMES = ("alfworld", "webshop", "search")


def load(name: str, **options) -> Domain:
    """The domain `name` with its options (see `Domain` in envs/base.py, and the module's own).

    Raises ValueError for a name that is not in `NAMES`.
    """
    if name not in NAMES:
        raise ValueError(f"--env {name}: unknown, choose one of {', '.join(NAMES)}")
    return import_module(f"envs.{name}").make_domain(**options)

"""`load(name)` gives the domain of that name; the module behind it is imported only then."""

from collections.abc import Sequence
from importlib import import_module
from inspect import signature

from envs.base import Domain

NAMES = ("alfworld", "webshop", "search")


def load(name: str, **options) -> Domain:
    """The domain `name` with its options (see `make_domain` of its module). All know `lean`, for a policy that reads
    lean prompts (a domain may have a smaller world for it), `think_in_prompt` (see `parse_action`) and `max_turns`.

    Raises ValueError for a name that is not in `NAMES` and for an option that the domain does not have.
    """
    if name not in NAMES:
        raise ValueError(f"--env {name}: unknown, choose one of {', '.join(NAMES)}")
    make = import_module(f"envs.{name}").make_domain
    known = signature(make).parameters
    if unknown := [key for key in options if key not in known]:
        raise ValueError(f"--env_args {unknown[0]}: {name} has no such option, it has {', '.join(known)}")
    return make(**options)


def read_args(args: Sequence[str]) -> dict[str, str | int]:
    """Options from the command line, each KEY=VALUE; whole numbers become int. Raises ValueError on other forms."""
    options: dict[str, str | int] = {}
    for arg in args:
        key, equals, value = arg.partition("=")
        if not equals or not key:
            raise ValueError(f"--env_args {arg}: give KEY=VALUE")
        options[key] = int(value) if value.isdigit() else value
    return options

"""Did you mean: the nearest known name to a mistyped one."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["did_you_mean", "nearest"]


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The name in `known` that is most like `name`, if one is alike enough; case is ignored."""
    import difflib

    by_fold = {each.casefold(): each for each in known}
    if name.casefold() in by_fold:
        return by_fold[name.casefold()]
    found = difflib.get_close_matches(name.casefold(), by_fold, n=1, cutoff=0.6)
    return by_fold[found[0]] if found else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'docker'?`, or nothing."""
    match = nearest(name, known)
    return f"; did you mean {match!r}?" if match is not None else ""

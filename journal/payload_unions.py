"""How the values of a union are stored.

The member is chosen by the exact type of the value. Its form stands bare where its JSON type alone
tells the member, else under the member's tag: ``{"$.Card": {...}}``. Members that are JSON's own
types (None, bool, int, float, str, list, dict) are always bare.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .payload_plans import JSON_SHAPES, Forms, Plan
from .payload_tagged import tag_of
from .payload_trouble import Trouble, glimpse, type_name


def union(forms: Forms, plan: Plan, members: list[Plan]) -> None:
    """Fill the plan of a union.

    Args:
        forms: Dumps and loads what belongs to no member exactly.
        plan: The plan to fill.
        members: The members' plans; those of recursive types may still be empty.
    """
    catch_all = any(not member.types and not member.label and member.plain for member in members)
    labels = _labels(members)
    tagged = [not _stands_bare(member, members) for member in members]
    by_type: dict[type, list[tuple[Plan, str | None]]] = {}
    by_label: dict[str, list[Plan]] = {}
    bare: dict[str, list[Plan]] = {}
    for member, label, has_tag in zip(members, labels, tagged, strict=True):
        for kind in member.types:
            by_type.setdefault(kind, []).append((member, "$" + label if has_tag else None))
        if label:
            by_label.setdefault("$" + label, []).append(member)
        for former in member.former:
            by_label.setdefault(f"$.{former}", []).append(member)
        if not has_tag:
            for shape in member.shapes:
                bare.setdefault(shape, []).append(member)

    plan.types = tuple(by_type)
    plan.fits = lambda value: any(member.fits(value) for member in members)

    def dump(value: Any) -> Any:
        failure: Trouble | None = None
        for member, tag in by_type.get(type(value), ()):
            try:
                tree = member.dump(value)
            except Trouble as trouble:
                failure = failure or trouble
                continue
            return tree if tag is None else {tag: tree}
        if failure is not None and not catch_all:
            raise failure
        return forms.stray(plan, value)

    def load(tree: Any) -> Any:
        tag = tag_of(tree)
        if tag is not None:
            failure: Trouble | None = None
            for member in by_label.get(tag, ()):
                try:
                    return member.load(tree[tag])
                except Trouble as trouble:
                    failure = failure or trouble
            if failure is not None:
                raise failure
            return forms.stray_load(plan, tree)
        first: Trouble | None = None
        candidates = bare.get(JSON_SHAPES[type(tree)], [])
        for member in candidates:
            try:
                return member.load(tree)
            except Trouble as trouble:
                first = first or trouble
        return _only_one(plan, [member for member in members if member not in candidates], tree, first)

    plan.dump, plan.load = dump, load
    plan.inside = tuple(members)
    plan.plain = _msgspec_agrees(members)
    plan.exact = _exactness(by_type) if plan.plain else plan.exact


def _exactness(by_type: dict[type, list[tuple[Plan, str | None]]]) -> Callable[[Any], bool]:
    single = {kind: members[0][0] for kind, members in by_type.items()}

    def exact(value: Any) -> bool:
        member = single.get(type(value))
        return member is not None and member.exact(value)

    return exact


def _only_one(plan: Plan, members: list[Plan], tree: Any, failure: Trouble | None) -> Any:
    """Read a form without its tag, as written when the hint was no union yet: one member must fit."""
    found: list[Any] = []
    for member in members:
        try:
            found.append(member.load(tree))
        except Trouble as trouble:
            failure = failure if failure is not None and failure.parts else trouble
    if len(found) == 1:
        return found[0]
    if len(found) > 1:
        names = " and ".join(type_name(type(value)) for value in found)
        raise Trouble(
            "data", f"{glimpse(tree)} without a tag fits more than one member of {plan.name}: {names}"
        )
    if failure is not None and failure.parts:
        raise failure
    raise Trouble("data", f"expected {plan.name}, got {glimpse(tree)}")


def _stands_bare(member: Plan, members: list[Plan]) -> bool:
    if member.primary:
        return True
    if not member.shapes:
        return not member.types and member.plain
    return not any(other is not member and set(other.shapes) & set(member.shapes) for other in members)


def _labels(members: list[Plan]) -> list[str]:
    """The members' tags, by module where two classes have one name."""
    labels = [member.label for member in members]
    return [
        f".{member.types[0].__module__}.{member.types[0].__qualname__}"
        if label.startswith(".") and labels.count(label) > 1 and member.types
        else label
        for member, label in zip(members, labels, strict=True)
    ]


def _msgspec_agrees(members: list[Plan]) -> bool:
    """Whether JSON types alone tell the members, so that msgspec reads what it would have written."""
    shapes = "".join(member.shapes for member in members)
    return (
        all(member.types and member.shapes for member in members)
        and len(set(shapes)) == len(shapes)
        and not ("i" in shapes and "f" in shapes)
    )

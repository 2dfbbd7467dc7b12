"""How pydantic models, and the value classes that pydantic brings, are stored.

Pydantic is an extra: it is never imported here, only found where user code has imported it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from .payload_plans import Forms, Plan
from .payload_tagged import dump_object, guarded, tag_of
from .payload_trouble import Trouble, type_name


def is_model(cls: type) -> bool:
    """Whether a class is a pydantic model; does not import pydantic."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and issubclass(cls, pydantic.BaseModel)


def model(forms: Forms, plan: Plan, cls: Any, plan_of: Callable[[Any], Plan]) -> None:
    """Fill the plan of a pydantic model.

    ``$set`` keeps which fields were given, where not all were; ``$extra`` the extra ones. A model
    is rebuilt without validation. Private attributes start anew; a value that would come back
    different for that reason is refused.
    """
    fields = {name: plan_of(field.annotation) for name, field in cls.model_fields.items()}
    required = frozenset(name for name, field in cls.model_fields.items() if field.is_required())
    has_private = bool(cls.__private_attributes__)
    tagged = forms.tagged

    def dump(value: Any) -> Any:
        if type(value) is not cls:
            return forms.stray(plan, value)
        out: dict[str, Any] = {}
        name = ""
        try:
            for name, field in fields.items():
                out[name] = field.dump(value.__dict__[name])
        except Trouble as trouble:
            raise trouble.at(f".{name}") from None
        except KeyError:
            raise Trouble("mismatch", f"the field {name!r} of {cls.__name__} has no value") from None
        given, extra = value.model_fields_set, value.model_extra
        if extra or given != fields.keys():
            if extra:
                out["$extra"] = dump_object(tagged.dump, extra)
            out["$set"] = sorted(given)
        if has_private and load(out) != value:
            raise Trouble("unsupported", f"private attributes of {cls.__name__} are not stored, and differ")
        return out

    def load(tree: Any) -> Any:
        if type(tree) is not dict or tag_of(tree):
            return forms.stray_load(plan, tree)
        values: dict[str, Any] = {}
        name = ""
        try:
            for name, field in fields.items():
                if name in tree:
                    values[name] = field.load(tree[name])
        except Trouble as trouble:
            raise trouble.at(f".{name}") from None
        missing = sorted(required - values.keys())
        if missing:
            raise Trouble("data", f"missing required field {missing[0]!r} of {cls.__name__}")
        extra = {key: tagged.load(part) for key, part in tree.get("$extra", {}).items()}
        given = tree.get("$set")
        return guarded(lambda _: _build_model(cls, values, extra, given), cls.__name__, tree)

    plan.dump, plan.load = dump, load


def _build_model(cls: Any, values: dict[str, Any], extra: dict[str, Any], given: list[str] | None) -> Any:
    if cls.__pydantic_root_model__:
        return cls.model_construct(values["root"])
    # model_construct fills defaults by alias or name; what was stored is put over it by name.
    made: Any = cls.model_construct(_fields_set=set(values) if given is None else set(given), **extra)
    made.__dict__.update(values)
    return made


def is_pydantic_value(cls: type) -> bool:
    """Whether pydantic itself brings a class and knows its JSON form, as of ``HttpUrl``."""
    return cls.__module__.partition(".")[0] == "pydantic" and hasattr(cls, "__get_pydantic_core_schema__")


def pydantic_value(forms: Forms, plan: Plan, cls: type) -> None:
    """Fill the plan of a class that pydantic brings.

    What pydantic's own form does not bring back equal is refused; secrets are, as it masks them.
    """
    adapter = sys.modules["pydantic"].TypeAdapter(cls)

    def dump(value: Any) -> Any:
        if type(value) is not cls:
            return forms.stray(plan, value)
        tree = adapter.dump_python(value, mode="json")
        if adapter.validate_python(tree) != value:
            raise Trouble("unsupported", f"pydantic does not store {type_name(cls)} in full")
        return tree

    def load(tree: Any) -> Any:
        if tag_of(tree):
            return forms.stray_load(plan, tree)
        return guarded(adapter.validate_python, cls.__name__, tree)

    plan.dump, plan.load = dump, load

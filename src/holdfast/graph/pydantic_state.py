"""States that are pydantic models: what they are made of, and what updates bring, is validated as the model says.

A value is validated as if it were assigned to its field, with the field's constraints and validators. Validators of the
model as a whole are asked when a stage has ended, and all of its updates are there.
"""

from __future__ import annotations

import sys
from collections.abc import Collection
from typing import Any

from holdfast.codec.readonly import Quiet, thawed
from holdfast.codec.shapes import Shape, shape_of
from holdfast.graph.type_fit import misfit

_CONFIG = {"validate_assignment": True, "frozen": False, "populate_by_name": True}


def model_checks(kind: Any) -> ModelChecks | None:
    """The checks of a state's type; None if it is no pydantic model."""
    pydantic = sys.modules.get("pydantic")  # whoever has a model has imported it
    return ModelChecks(kind, pydantic) if pydantic and issubclass(kind, pydantic.BaseModel) else None


class ModelChecks:
    """Validates what becomes of a model."""

    def __init__(self, kind: Any, pydantic: Any) -> None:
        self._invalid: type[ValueError] = pydantic.ValidationError
        validators = kind.__pydantic_decorators__.model_validators
        skipped = {name: pydantic.model_validator(mode="after")(_as_it_is) for name in validators}
        self._has_validators = bool(validators)
        self._whole = _derived(kind, {})
        self._single = _derived(kind, skipped)

    def made(self, values: dict[str, Any], shape: Shape) -> Any:
        """The model with these values, by the names of its fields; ValueError says what is wrong."""
        try:
            return shape.make(*self._whole.take(self._whole.cls(**values)))
        except self._invalid as error:
            raise ValueError(_told(error)) from error

    def field(self, values: dict[str, Any], name: str, value: Any) -> Any:
        """What the model makes of a value for a field; ValueError says what is wrong."""
        model = self._single.make(dict(values), {})
        try:
            setattr(model, name, thawed(value))
        except self._invalid as error:
            [first, *_] = error.errors(include_url=False)  # type: ignore[attr-defined]
            told = misfit(value, self._whole.cls.model_fields[name].annotation) or f"got {value!r}"  # type: ignore[attr-defined]
            raise ValueError(f"{first['msg']}; {told}") from error
        return getattr(model, name)

    def together(self, values: dict[str, Any], changed: Collection[str]) -> None:
        """Ask the validators of the whole model; ValueError says what is wrong. What they change is not kept."""
        if not self._has_validators or not changed:
            return
        model = self._whole.make(dict(values), {})
        name = next(iter(changed))
        try:
            setattr(model, name, values[name])
        except self._invalid as error:
            raise ValueError(_told(error)) from error


def _derived(kind: Any, body: dict[str, Any]) -> Shape:
    told = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "model_config": _CONFIG}
    shape = shape_of(type(kind)(kind.__name__, (Quiet, kind), {**told, **body}))
    assert shape is not None
    return shape


def _as_it_is(model: Any) -> Any:
    return model


def _told(error: Any) -> str:
    """The mistakes in one line."""
    found = [(".".join(map(str, one["loc"])), one["msg"]) for one in error.errors(include_url=False)]
    return "; ".join(f"{place}: {message}" if place else message for place, message in found)

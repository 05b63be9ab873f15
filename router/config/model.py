"""What every section is made of: kinds of values, the model that refuses unknown keys, and a refusal in words."""

import difflib
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import ErrorDetails, PydanticCustomError

Port = Annotated[int, Field(strict=True, ge=0, le=65_535)]
Count = Annotated[int, Field(strict=True, ge=1, le=1_000_000_000)]
SizeBytes = Annotated[int, Field(strict=True, ge=1, le=1 << 40)]
Seconds = Annotated[float, Field(strict=True, gt=0, le=31_536_000)]
Weight = Annotated[float, Field(strict=True, ge=0, le=1_000_000)]
Ratio = Annotated[float, Field(strict=True, ge=0, le=1)]
Text = Annotated[str, Field(strict=True, min_length=1, max_length=4_096)]


class ConfigModel(BaseModel):
    """Frozen, no unknown keys, no NaN; an unknown key is answered with the nearest valid one."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_keys(cls, data: object) -> object:
        for key in data if isinstance(data, Mapping) else ():
            if key not in cls.model_fields:
                told = {"key": str(key), "problem": f"unknown key; {describe_valid(key, sorted(cls.model_fields))}"}
                raise PydanticCustomError("unknown_key", "{problem}", told)
        return data


def describe_valid(word: object, names: Iterable[str]) -> str:
    """What would be valid in the place of a word, the nearest first."""
    valid = list(names)
    if not valid:
        return "nothing is valid here"
    near = difflib.get_close_matches(str(word), valid, n=1)
    guess = f"did you mean {near[0]!r}? " if near else ""
    return f"{guess}valid here: {', '.join(valid)}"


#: What would be valid, by kind of refusal, where the library says it in words of Python.
_NEEDS = {
    "bool_type": "needs true or false",
    "dict_type": "needs a mapping",
    "float_type": "needs a number",
    "int_type": "needs a whole number",
    "model_type": "needs a mapping",
    "string_type": "needs text; put it in quotes",
    "tuple_type": "needs a list; [] is an empty one",
}


def describe_refusal(detail: ErrorDetails) -> tuple[list[str], object, str, bool]:
    """Key path, value and problem of a refusal, and whether there is a value to show."""
    path = [str(part) for part in detail["loc"] if not str(part).startswith("<")]
    context: dict[str, Any] = detail.get("ctx") or {}
    value, problem = detail["input"], _NEEDS.get(detail["type"], detail["msg"])
    if "key" in context:
        key = context["key"]
        value = context.get("value", value.get(key) if isinstance(value, Mapping) else value)
        path += key.split(".")
    is_missing = detail["type"] == "missing"
    return path, None if is_missing else value, problem, not is_missing

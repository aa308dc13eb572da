"""Carries values between Pulumi's wire format and plain Python, unknown ones as UNKNOWN."""

from __future__ import annotations

from typing import Any, Final

from google.protobuf.struct_pb2 import Struct, Value

UNKNOWN_TEXT = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
SIGNATURE = "4dabf18193072939515e22adb298388d"
SECRET = "1b47061264138c4ac30d75fd1eb44270"


class Unknown:
    """What is not known before the service has answered."""

    def __repr__(self) -> str:
        return "UNKNOWN"

    def __deepcopy__(self, memo: dict[int, Any]) -> Unknown:
        return self


UNKNOWN: Final = Unknown()


def unpack(struct: Struct) -> dict[str, Any]:
    """A message's fields without nulls; a secret as what it holds (we ask for none as such)."""
    return {key: _value(each) for key, each in struct.fields.items() if not _is_null(each)}


def _is_null(value: Value) -> bool:
    return value.WhichOneof("kind") in {None, "null_value"}


def _value(value: Value) -> Any:
    kind = value.WhichOneof("kind")
    if kind == "string_value":
        text = value.string_value
        return UNKNOWN if text == UNKNOWN_TEXT else text
    if kind == "number_value":
        number = value.number_value
        return int(number) if number.is_integer() else number
    if kind == "bool_value":
        return value.bool_value
    if kind == "list_value":
        return [_value(each) for each in value.list_value.values]
    fields = unpack(value.struct_value)
    return fields["value"] if fields.get(SIGNATURE) == SECRET else fields


def pack(values: dict[str, Any]) -> Struct:
    """The message of these fields; none for a None."""
    struct = Struct()
    struct.update({key: _packed(each) for key, each in values.items() if each is not None})
    return struct


def _packed(value: Any) -> Any:
    if value is UNKNOWN:
        return UNKNOWN_TEXT
    if isinstance(value, dict):
        return {key: _packed(each) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_packed(each) for each in value]
    return value


def holds_unknown(value: Any) -> bool:
    """Whether anything within is not known yet."""
    if isinstance(value, dict):
        return any(holds_unknown(each) for each in value.values())
    if isinstance(value, list):
        return any(holds_unknown(each) for each in value)
    return value is UNKNOWN

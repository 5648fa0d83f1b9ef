"""Translates a table's keys and events in JSON to the Avro bytes that they were before `json_events` made JSON of them.

Before: `consumer` gives the records of a table whose topic has JSON; `table_schemas` has the table's present schemas.
After: readers decode the Avro bytes, as those of every other topic.

JSON does not name its schema. So each event is read by the table's present schema, without the columns that it lacks.
Columns that the table has no more are left out. A column may have had another type: a value that does not fit becomes
null, and `unrepresentable` has its text, as it has that of every value that Avro cannot hold. The options of a truncate
are left out.

Hot path, compiled.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final, final

from librt.strings import BytesWriter

from cdcd.avro.avro_names import avro_name, namespace, postgres_name
from cdcd.avro.codecs.varint import write_long, write_text
from cdcd.avro.envelope_fields import ENVELOPE, TRUNCATE_ENVELOPE
from cdcd.avro.schema import define_once
from cdcd.avro.single_object import fingerprint, header
from cdcd.reading.decoder import not_an_event
from cdcd.reading.json_form_lookup import form_of
from cdcd.reading.json_forms import Array, Field, Form, Misfit, Name, Nullable, Record, Text

SHAPES_MAX: Final = 1_000
"""The sets of columns that are kept: the table has had so many since its oldest event."""

_ENVELOPE: Final = tuple([field.name for field in ENVELOPE])
_TRUNCATE: Final = tuple([field.name for field in TRUNCATE_ENVELOPE])
_OPS: Final = ("c", "r", "u", "d", "t")
_IDENTITIES: Final = ("none", "key", "full")
_LOST: Final = ("image", "column", "text")
_SCHEMA: Final = '{"schema":'
_PAYLOAD: Final = ',"payload":'


@final
class Shape:
    """The columns that some events, or keys, have, and the schema of these."""

    def __init__(self, start: bytes, columns: list[Field], names: dict[str, str]) -> None:
        """`start`: the bytes that name the schema. `names`: Avro's names of the columns, by PostgreSQL's."""
        self.start = start
        self.columns = columns
        self.names = names


@final
class JsonTranslator:
    """Translates the records of one table."""

    def __init__(
        self,
        key: dict[str, Any] | None,
        value: dict[str, Any],
        note: Callable[[str, str], None],
        *,
        with_schemas: bool,
    ) -> None:
        """`key`, `value`: the table's Avro schemas; None: its events have no key.

        `note` takes the fingerprint and the text of each schema that a translated record names. `with_schemas`:
        Connect's schema stands before each key and value.
        """
        expanded: Any = _expanded(value, {})
        self._envelope: dict[str, Any] = expanded
        self._note = note
        self._with_schemas = with_schemas
        columns: list[dict[str, Any]] = _row_of(expanded)["fields"]
        names = {postgres_name(each["name"]): str(each["name"]) for each in columns}
        self._names: dict[str, str] = names
        [source] = [each["type"] for each in expanded["fields"] if each["name"] == "source"]
        self._source = form_of(source)
        self._column_forms: dict[str, Form] = {postgres_name(each["name"]): form_of(each["type"]) for each in columns}
        self._shapes: dict[tuple[str, ...], Shape] = {}
        self._all = self._made_shape(tuple(names))
        self._key: Shape | None = None
        self._key_names: tuple[str, ...] = ()
        if key is not None:
            fields = [
                Field(postgres_name(each["name"]), _losses(names) if _is_losses(each) else form_of(each["type"]))
                for each in _expanded(key, {})["fields"]
            ]
            self._key_names = tuple([each.name for each in fields])
            self._key = Shape(self._named(key), fields, {})
        self._others = b""
        """Stands for the events of other tables; empty: no other table shares the topic."""
        if {"schema", "table"} <= {each["name"] for each in source["fields"]}:
            self._others = self._named({"type": "record", "name": "Envelope", "namespace": "others", "fields": []})
        self._other_keys: dict[tuple[str, ...], bytes] = {}
        self._last = self._all
        self._last_names = tuple(names)
        self._head = ""
        """The schema before the payload of the last record, up to the payload."""

    def key(self, data: bytes) -> bytes:
        """The Avro bytes of a key. One of other columns, or types, has a schema of strings. Raises DecodeError."""
        document = self._document(data)
        if not isinstance(document, dict):
            raise not_an_event(data)
        names, shape = tuple(document), self._key
        if shape is not None and names == self._key_names:
            out = BytesWriter()
            out.write(shape.start)
            try:
                for field in shape.columns:
                    field.form.write(document[field.name], out)
            except Misfit:
                return self._other_key(document, data)
            return out.getvalue()
        return self._other_key(document, data)

    def event(self, data: bytes) -> bytes:
        """The Avro bytes of an event; one of another table has no more than a schema of another namespace.

        Raises DecodeError if `data` is no event in JSON.
        """
        document = self._document(data)
        if not isinstance(document, dict):
            raise not_an_event(data)
        if self._others and self._is_of_others(document.get("source")):
            return self._others
        names = tuple(document)
        if names != (_TRUNCATE if document.get("op") == "t" else _ENVELOPE):
            raise not_an_event(data)
        try:
            return self._event(document)
        except Misfit:
            raise not_an_event(data) from None

    def _event(self, document: dict[str, Any]) -> bytes:
        op, identity, before, after = document["op"], document["identity"], document["before"], document["after"]
        if op not in _OPS or identity not in _IDENTITIES:
            raise Misfit
        shape = self._shape(after if before is None else before)
        if before is not None and after is not None and (not isinstance(after, dict) or tuple(after) != tuple(before)):
            raise Misfit
        out = BytesWriter()
        out.write(shape.start)
        write_text(out, op)
        self._source.write(document["source"], out)
        write_text(out, identity)
        lost = list[tuple[str, str, str]]()
        for image, row in (("before", before), ("after", after)):
            if row is None:
                out.append(0)
            else:
                out.append(2)
                _write_row(row, shape, image, lost, out)
        unchanged = document["unchanged"]
        if not isinstance(unchanged, list):
            raise Misfit
        _write_texts([(shape.names[each],) for each in unchanged if _is_shown(each, shape)], out)
        of_event = document["unrepresentable"]
        if not isinstance(of_event, list):
            raise Misfit
        for each in of_event:
            if not isinstance(each, dict) or tuple(each) != _LOST:
                raise Misfit
            image, column, text = each["image"], each["column"], each["text"]
            if image not in ("before", "after") or not isinstance(text, str):
                raise Misfit
            if _is_shown(column, shape):
                lost.append((image, shape.names[column], text))
        _write_texts(lost, out)
        return out.getvalue()

    def _is_of_others(self, source: object) -> bool:
        if not isinstance(source, dict):
            return False
        schema, table = source.get("schema"), source.get("table")
        if not isinstance(schema, str) or not isinstance(table, str):
            return False
        return bool(namespace(schema, table) != self._envelope["namespace"])

    def _shape(self, row: object) -> Shape:
        if row is None:
            return self._all
        if not isinstance(row, dict):
            raise Misfit
        names = tuple(row)
        if names == self._last_names:
            return self._last
        shape = self._shapes.get(names)
        if shape is None:
            if len(self._shapes) >= SHAPES_MAX:
                del self._shapes[next(iter(self._shapes))]
            shape = self._shapes[names] = self._made_shape(names)
        self._last, self._last_names = shape, names
        return shape

    def _made_shape(self, names: tuple[str, ...]) -> Shape:
        wanted = {name: self._names[name] for name in self._names if name in names}
        envelope = json.loads(json.dumps(self._envelope))
        for field in envelope["fields"]:
            if field["name"] in ("before", "after"):
                row = field["type"][1]
                row["fields"] = [each for each in row["fields"] if each["name"] in wanted.values()]
        columns = [Field(name, self._column_forms[name]) for name in wanted]
        return Shape(self._named(envelope), columns, wanted)

    def _named(self, schema: dict[str, Any]) -> bytes:
        text = json.dumps(define_once(schema, {}), ensure_ascii=False, separators=(",", ":"))
        digest = fingerprint(text)
        self._note(digest.hex(), text)
        return header(digest)

    def _other_key(self, document: dict[str, Any], data: bytes) -> bytes:
        names = tuple(document)
        start = self._other_keys.get(names)
        if start is None:
            if len(self._other_keys) >= SHAPES_MAX:
                del self._other_keys[next(iter(self._other_keys))]
            fields = [_other_field(name, value) for name, value in document.items()]
            of_table = self._envelope["namespace"]
            start = self._named({"type": "record", "name": "Key", "namespace": of_table, "fields": fields})
            self._other_keys[names] = start
        out = BytesWriter()
        out.write(start)
        form = Nullable(Text())
        try:
            for value in document.values():
                form.write(None if value is None else _text(value), out)
        except Misfit:
            raise not_an_event(data) from None
        return out.getvalue()

    def _document(self, data: bytes) -> object:
        """The value of JSON; a record without a schema if there are schemas, and what is no JSON, raise DecodeError."""
        try:
            text = data.decode()
            if self._with_schemas:
                if not self._head or not text.startswith(self._head):
                    self._head = _head(text)
                if text[-1] != "}":
                    raise not_an_event(data)
                text = text[len(self._head) : -1]
            found: object = _DECODER.decode(text)
        except (ValueError, RecursionError):
            raise not_an_event(data) from None
        return found


def _write_row(
    row: dict[str, Any], shape: Shape, image: str, lost: list[tuple[str, str, str]], out: BytesWriter
) -> None:
    for column in shape.columns:
        value = row[column.name]
        at = len(out)
        try:
            column.form.write(value, out)
        except Misfit:
            out.truncate(at)
            out.append(0)
            lost.append((image, shape.names[column.name], _text(value)))


def _write_texts(records: Sequence[tuple[str, ...]], out: BytesWriter) -> None:
    """Append an array of strings, or of records of strings."""
    if records:
        write_long(out, len(records))
        form = Text()
        for record in records:
            for text in record:
                form.write(text, out)
    out.append(0)


def _is_shown(column: object, shape: Shape) -> bool:
    """Whether the table still has a column that an event names. Raises Misfit if it is no name."""
    if not isinstance(column, str):
        raise Misfit
    return column in shape.names


def _text(value: object) -> str:
    """A value of another type as PostgreSQL's text, where JSON shows that."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _other_field(name: str, value: object) -> dict[str, Any]:
    field: dict[str, Any] = {"name": avro_name(name), "type": ["null", "string"], "default": None}
    is_no_column = name.lstrip("_") == "unrepresentable" and isinstance(value, list)
    return field if is_no_column else field | {"pg_type": "pg_catalog.text", "pg_name": name}


def _is_losses(field: dict[str, Any]) -> bool:
    """Whether a field of a key's schema has the values that Avro cannot hold: it is a list, and no column."""
    return "pg_type" not in field and isinstance(field["type"], dict)


def _losses(names: dict[str, str]) -> Form:
    """The form of that field. `names`: Avro's names of the columns, by PostgreSQL's."""
    made = Record()
    made.add("column", Name(names))
    made.add("text", Text())
    return Array(made)


def _row_of(envelope: dict[str, Any]) -> dict[str, Any]:
    [before] = [each for each in envelope["fields"] if each["name"] == "before"]
    row: dict[str, Any] = before["type"][1]
    return row


def _expanded(avro: Any, named: dict[str, Any]) -> Any:
    """The schema with each named type written out wherever it is used."""
    if isinstance(avro, list):
        return [_expanded(branch, named) for branch in avro]
    if isinstance(avro, str):
        return named.get(avro, avro)
    found = dict(avro)
    if found["type"] == "record":
        found["fields"] = [field | {"type": _expanded(field["type"], named)} for field in found["fields"]]
        named[found["name"]] = found
        return found
    for part in ("type", "items", "values"):
        if isinstance(found.get(part), (dict, list, str)):
            found[part] = _expanded(found[part], named)
    return found


def _head(text: str) -> str:
    """What stands before the payload. Raises ValueError if the text does not begin with a schema."""
    if not text.startswith(_SCHEMA):
        raise ValueError("no schema")
    _, end = _DECODER.raw_decode(text, len(_SCHEMA))
    if not text.startswith(_PAYLOAD, end):
        raise ValueError("no payload")
    return text[: end + len(_PAYLOAD)]


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name comes twice")
    return found


def _refuse(constant: str) -> Any:
    raise ValueError(constant)


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_refuse)

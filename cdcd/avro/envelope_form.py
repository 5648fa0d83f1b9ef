"""What an event has around its rows and values: the interface of cdcd's two forms of the same envelope, Avro and JSON.

Before: `event_encoder` and `key_encoder` know the transaction, the change, and which values there are.
After: they write the pieces. `envelope_writer` implements the form in Avro, `json_events.envelope` that in JSON.

Hot path: most pieces are bytes that are made once. So an event costs one virtual call here, and a value none.
"""

from __future__ import annotations

from librt.strings import BytesWriter
from mypy_extensions import i64

from cdcd.avro.codecs.base import Codec, Transcoder


class EnvelopeForm:
    """Makes the pieces of keys and events. It has the open transaction."""

    def __init__(
        self,
        *,
        is_json: bool,
        only_after: bytes,
        full_before: bytes,
        key_before: bytes,
        after: bytes,
        no_after: bytes,
        end: bytes,
    ) -> None:
        self.is_json = is_json
        """Names stand before values, and braces around records. In Avro one byte says whether there is a value."""
        self.only_after = only_after
        """From `source` to the row `after`, if there is no row `before`."""
        self.full_before = full_before
        """From `source` to the row `before`, if the old tuple was whole."""
        self.key_before = key_before
        """The same, if only its key came."""
        self.after = after
        """Between the two rows."""
        self.no_after = no_after
        """Behind the row `before`, if there is no row `after`."""
        self.end = end
        """Behind the rows, if all their values came."""

    def begin(self, commit_lsn: i64, commit_ts: i64, xid: i64, origin: str) -> None:
        """Begin a transaction, or the rows of a snapshot; `commit_ts` in microseconds since 1970-01-01 UTC.

        Called again once the transaction's origin is known. `origin` "": none.
        """
        raise NotImplementedError

    def write_head(self, out: BytesWriter, op: i64, seq: i64, lsn: i64, table: bytes) -> None:
        """Append the fields `op` (an ASCII code) and `source`. `table`: as `table_in_source` gives it, or empty."""
        raise NotImplementedError

    def write_losses(self, out: BytesWriter, unchanged: list[str], unrepresentable: list[tuple[str, str, str]]) -> None:
        """Append what is behind the rows: columns, and image, column and text of values. Not a hot path."""
        raise NotImplementedError

    def write_rest_of_truncate(self, out: BytesWriter, cascade: bool, restart_identity: bool) -> None:
        """Append the fields of a truncate behind `source`. Not a hot path."""
        raise NotImplementedError

    def key_end(self, field: str, losses: list[tuple[str, str]]) -> bytes:
        """What is behind a key's values: the losses (column and text) in a field of this name; "": it has none."""
        raise NotImplementedError

    def table_in_source(self, schema: str, table: str) -> bytes:
        """The last fields of `source` on a topic that other tables share."""
        raise NotImplementedError

    def table_in_key(self, names: tuple[str, ...], schema: str, table: str) -> bytes:
        """The first fields of a key there. `names`: of the two fields."""
        raise NotImplementedError

    def writer(self, codec: Codec) -> Transcoder:
        """What writes the values of a column. False: this form cannot hold the value, neither can the other."""
        raise NotImplementedError

    def name(self, column: str, avro_name: str) -> str:
        """What a column is called."""
        raise NotImplementedError

    def piece(self, name: str, is_first: bool) -> bytes:
        """What is before the value of a record's field; empty in Avro."""
        raise NotImplementedError

"""Types whose Avro form is a string and whose binary form is not: network addresses, bits, pg_lsn, tsvector.

Before: `lookup` chooses the codec by the column's type.
After: `event_encoder` calls it once a value.
Source: PostgreSQL `network.c` (`network_send`: family, prefix length, whether it is a cidr, address length, address),
`inet_net_ntop.c`, `mac.c`, `mac8.c`, `varbit.c`, `pg_lsn.c`.
"""

from __future__ import annotations

from librt.strings import BytesWriter, read_i32_be
from mypy_extensions import i64

from cdcd.avro.codecs.base import Codec
from cdcd.avro.codecs.errors import malformed, wrong_size
from cdcd.avro.codecs.registry import TypeRegistry
from cdcd.avro.codecs.text_encoding import TextCodec
from cdcd.avro.codecs.varint import write_bytes, write_text
from cdcd.lsn import format_lsn


class TextOnly(Codec):
    """A type whose Avro form is PostgreSQL's text. Subclasses render the binary form."""

    def __init__(self) -> None:
        super().__init__("string")

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        write_text(out, self.render(data, at, size))
        return True

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        write_bytes(out, data, at, size)
        return True


class Inet(TextOnly):
    """inet, cidr -> string. As in PostgreSQL, an inet shows no prefix length if the prefix is the whole address."""

    def __init__(self, type_name: str) -> None:
        super().__init__()
        self.type_name = type_name

    def render(self, data: bytes, at: i64, size: i64) -> str:
        value = data[at : at + size]
        if value[:1] not in (b"\x02", b"\x03"):
            raise malformed(self.type_name, "address family 2 or 3", "another one")
        octets = 4 if value[0] == 2 else 16
        if size != 4 + octets or value[3] != octets or value[1] > 8 * octets:
            raise malformed(self.type_name, f"{4 + octets} bytes and a prefix of at most {8 * octets} bits", f"{size}")
        host = ".".join(str(octet) for octet in value[4:]) if octets == 4 else _ipv6_text(value[4:])
        return host if value[1] == 8 * octets and not value[2] else f"{host}/{value[1]}"


def _ipv6_text(address: bytes) -> str:
    """As `inet_net_ntop_ipv6`: the first longest run of two or more zero words is `::`."""
    words = [address[i] << 8 | address[i + 1] for i in range(0, 16, 2)]
    best, length = -1, 1
    for start in range(8):
        run = 0
        while start + run < 8 and words[start + run] == 0:
            run += 1
        if run > length:
            best, length = start, run
    if best < 0:
        return ":".join(f"{word:x}" for word in words)
    if best == 0 and (length == 6 or (length == 5 and words[5] == 0xFFFF)):  # an IPv4 address inside
        return "::" + ("ffff:" if length == 5 else "") + ".".join(str(octet) for octet in address[12:])
    before = ":".join(f"{word:x}" for word in words[:best])
    return before + "::" + ":".join(f"{word:x}" for word in words[best + length :])


class Macaddr(TextOnly):
    """macaddr (6 bytes), macaddr8 (8 bytes) -> string."""

    def __init__(self, type_name: str, octets: int) -> None:
        super().__init__()
        self.type_name = type_name
        self.octets = octets

    def render(self, data: bytes, at: i64, size: i64) -> str:
        if size != self.octets:
            raise wrong_size(self.type_name, self.octets, size)
        return data[at : at + size].hex(":")


class Bit(TextOnly):
    """bit, varbit -> string of 0 and 1."""

    def render(self, data: bytes, at: i64, size: i64) -> str:
        bits = int(read_i32_be(data, at)) if size >= 4 else -1
        if bits < 0 or size != 4 + (bits + 7) // 8:
            raise malformed("bit", "a count and so many bits", f"{size} bytes")
        return "".join(f"{byte:08b}" for byte in data[at + 4 : at + size])[:bits]


class PgLsn(TextOnly):
    """pg_lsn -> string, such as `16/B374D848`."""

    def render(self, data: bytes, at: i64, size: i64) -> str:
        if size != 8:
            raise wrong_size("pg_lsn", 8, size)
        return format_lsn(int.from_bytes(data[at : at + 8], "big"))


class Tsvector(TextCodec):
    """tsvector -> string.

    Binary: a count, then for each lexeme its text, a zero, the count of its positions, the positions.
    """

    def __init__(self) -> None:
        super().__init__("string")

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        raw = self.raw(data, at, size)
        write_bytes(out, raw, 0, len(raw))
        return True

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        write_bytes(out, data, at, size)
        return True

    def raw(self, data: bytes, at: i64, size: i64) -> bytes:
        value = data[at : at + size]
        if size < 4:
            raise malformed("tsvector", "a count of lexemes", f"{size} bytes")
        lexemes = []
        i = 4
        for _ in range(int.from_bytes(value[:4], "big")):
            end = value.find(b"\0", i)
            count = int.from_bytes(value[end + 1 : end + 3], "big")
            if end < 0 or end + 3 + 2 * count > size:
                raise malformed("tsvector", "lexemes and their positions", "fewer bytes")
            lexeme = b"'" + value[i:end].replace(b"\\", b"\\\\").replace(b"'", b"''") + b"'"
            positions = [int.from_bytes(value[p : p + 2], "big") for p in range(end + 3, end + 3 + 2 * count, 2)]
            # The top two bits are the weight: D (0), C, B or A. PostgreSQL does not write D.
            places = ",".join(f"{p & 0x3FFF}{('', 'C', 'B', 'A')[p >> 14]}" for p in positions)
            lexemes.append(lexeme + b":" + places.encode() if places else lexeme)
            i = end + 3 + 2 * count
        if i != size:
            raise malformed("tsvector", "nothing after the last lexeme", f"{size - i} bytes")
        return b" ".join(lexemes)


def register(types: TypeRegistry) -> None:
    """Make network addresses, bits, pg_lsn and tsvector known."""
    types.add_built_in("cidr", 650, lambda request: Inet(request.name))
    types.add_built_in("inet", 869, lambda request: Inet(request.name))
    types.add_built_in("macaddr8", 774, lambda request: Macaddr(request.name, 8))
    types.add_built_in("macaddr", 829, lambda request: Macaddr(request.name, 6))
    types.add_built_in("bit", 1560, lambda _: Bit())
    types.add_built_in("varbit", 1562, lambda _: Bit())
    types.add_built_in("pg_lsn", 3220, lambda _: PgLsn())
    types.add_built_in("tsvector", 3614, lambda _: Tsvector())

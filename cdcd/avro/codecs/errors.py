"""The one error of the codecs: bytes that are not a value of their column's type.

After: every codec raises it. The text names the type, what was wanted and what came. It never shows the value, which
may be somebody's secret.
"""

from __future__ import annotations

from cdcd.errors import DecodeError

HINT = "The server's types and cdcd's do not agree: report this with the server's version"


def malformed(type_name: str, wanted: str, got: str) -> DecodeError:
    """The error of a value of `type_name` that should have been `wanted`."""
    return DecodeError(f"a value of type {type_name}: wanted {wanted}, got {got}", HINT)


def wrong_size(type_name: str, wanted: int, got: int) -> DecodeError:
    """The error of a binary value that has `got` bytes where its type has `wanted`."""
    return malformed(type_name, f"{wanted} bytes", f"{got}")


def wrong_text(type_name: str, wanted: str, size: int) -> DecodeError:
    """The error of a text value of `size` bytes that does not read as `wanted`."""
    return malformed(type_name, wanted, f"another text of {size} bytes")

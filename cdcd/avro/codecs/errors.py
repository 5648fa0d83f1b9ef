"""The error of the codecs: bytes that are not a value of their column's type.

Before: every codec raises it. After: the daemon stops. The message names the type, the expected form and the size. It
never shows the value, which may be secret.
"""

from __future__ import annotations

from cdcd.errors import DecodeError

HINT = "cdcd reads this type differently than the server writes it: report this with the server's version"


def malformed(type_name: str, wanted: str, got: str) -> DecodeError:
    """The error of a value of `type_name` that should have been `wanted`."""
    return DecodeError(f"a value of type {type_name}: wanted {wanted}, got {got}", HINT)


def wrong_size(type_name: str, wanted: int, got: int) -> DecodeError:
    """The error of a binary value that has `got` bytes where its type has `wanted`."""
    return malformed(type_name, f"{wanted} bytes", f"{got}")


def wrong_text(type_name: str, wanted: str, size: int) -> DecodeError:
    """The error of a text value of `size` bytes that is not `wanted`."""
    return malformed(type_name, wanted, f"another text of {size} bytes")

"""The files of certificates that libpq reads, in errors of TLS.

Before: `session` could not connect.
After: the error says which certificate has expired, or until when they are valid.
Source: libpq, "SSL Support", "Client Certificates"; "Parameter Key Words".
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from cdcd.certificates import faults, of_file
from cdcd.clock import utc_now
from cdcd.errors import CdcdError
from cdcd.source.login import parameter

_FILES: Final = {"sslcert": "postgresql.crt", "sslrootcert": "root.crt"}
"""By parameter: the name of the file in ~/.postgresql, where libpq looks by itself."""
_CODES: Final = frozenset({"client-certificate-refused", "server-certificate-unverified"})


def dating(error: CdcdError, params: Mapping[str, Any]) -> CdcdError:
    """Let an error about a certificate name the files, and when the certificates in them expire. Returns the error."""
    if error.code not in _CODES:
        return error
    files = {name: parameter(params, name) or str(Path.home() / ".postgresql" / file) for name, file in _FILES.items()}
    dates = {
        f"{name} = {path}": found
        for name, path in files.items()
        if (found := of_file(path, is_ca=name == "sslrootcert"))
    }
    if dates:
        error.hint = f"{error.hint}. The files: {', '.join(f'{name} ({each})' for name, each in dates.items())}"
    wrong = faults(dates, utc_now())
    if wrong:
        error.message = f"{error.message}; {wrong}"
    elif error.code == "server-certificate-unverified" and "does not match host name" not in error.message:
        error.hint += ". The server's own certificate may have expired, or be of another CA"
    return error

"""A replication slot as the server described it at one moment: a plain value.

Before: `slot` reads it. After: metrics, the status page, and the check that slot and progress belong together.
Source: PostgreSQL, "pg_replication_slots", versions 14 to 18.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SlotState:
    """One row of `pg_replication_slots`, as of one moment. LSNs are end-exclusive; None where the server has none."""

    name: str
    plugin: str
    database: str
    temporary: bool
    active: bool
    active_pid: int | None
    confirmed_flush_lsn: int | None
    """Where a stream would start; None until the slot has found its consistent point."""
    restart_lsn: int | None
    """The oldest WAL that the slot still needs; None if it was lost."""
    wal_status: str
    """reserved, extended, unreserved or lost; empty if the slot holds no WAL."""
    safe_wal_bytes: int | None
    """How much may still be written before the slot is in danger of losing WAL; None: no limit, or lost."""
    two_phase: bool
    failover: bool
    invalidation: str
    """Why it was invalidated: wal_removed, rows_removed, wal_level_insufficient, idle_timeout; empty if it was not."""
    wal_lsn: int
    """The server's WAL position when this was read (on a standby: what it has replayed)."""

    @property
    def retained_bytes(self) -> int:
        """How much WAL the server keeps for this slot."""
        return 0 if self.restart_lsn is None else max(0, self.wal_lsn - self.restart_lsn)

    @property
    def lag_bytes(self) -> int:
        """How far the confirmed position is behind the server's WAL."""
        return 0 if self.confirmed_flush_lsn is None else max(0, self.wal_lsn - self.confirmed_flush_lsn)

    @property
    def lost(self) -> bool:
        """Whether the slot can never stream again."""
        return bool(self.invalidation) or self.wal_status == "lost"

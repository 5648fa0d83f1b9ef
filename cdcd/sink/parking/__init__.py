"""Parked and deferred tables: their state, and their events on the parked topic."""

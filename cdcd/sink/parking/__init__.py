"""Parked tables: their events on the parked topic, and the state of each."""

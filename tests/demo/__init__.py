"""The demonstration of `tests/quickstart`: a shop, the daemon, and a screen that shows the events."""

"""What `tests/quickstart` runs: a shop, the daemon, and a screen that shows the events."""

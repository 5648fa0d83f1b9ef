"""Support of several kinds of tests: servers as fixtures, streams, readers, workloads."""

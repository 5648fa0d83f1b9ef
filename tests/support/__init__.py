"""What several kinds of tests share: servers as fixtures, streams, readers, workloads."""

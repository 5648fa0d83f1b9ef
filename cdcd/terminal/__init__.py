"""What people see on a terminal: progress bars, sizes and durations in words."""

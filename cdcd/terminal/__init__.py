"""Text for terminals: progress bars, and sizes, durations and counts in words."""

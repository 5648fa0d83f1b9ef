"""Text for people: hidden characters made visible, progress bars, and sizes, durations and counts in words."""

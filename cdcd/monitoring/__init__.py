"""What the daemon tells about itself: status, metrics, the page, health, the log."""

"""What the daemon tells about itself: status, metrics, status page, health checks, log."""

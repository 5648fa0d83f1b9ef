"""The daemon's reports about itself: status, metrics, status page, health checks, log."""

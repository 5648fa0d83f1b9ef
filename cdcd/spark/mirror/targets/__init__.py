"""Table formats that a mirror can write: what one must do, and the two that do it."""

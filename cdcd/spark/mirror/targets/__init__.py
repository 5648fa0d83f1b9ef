"""The table formats that a mirror can write: the interface, Delta and Iceberg."""

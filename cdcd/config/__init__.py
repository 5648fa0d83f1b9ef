"""Settings: what there is, where it is read from, and the reference file that is made of it."""

"""The consumer's half of the wire format: what reads the topics back, without any producer code."""

"""The consumer's half of the wire format: reads the topics back. It holds no producer code."""

"""The values of PostgreSQL's types as Connect has them. `lookup` chooses, one file a family of types."""

"""`cdcd check`: finds out whether `cdcd run` would work.

Before: `source` and `sink.kafka` ask the servers. After: `cli.commands.check` prints the findings.

- `check`: the order of the subjects. `findings`: one finding.
- `postgres_facts`, `postgres`: ask PostgreSQL; the order of its subjects.
- `server`, `slot`, `publication`, `replica_identity`, `privileges`: judge one subject of PostgreSQL each.
- `kafka`, `progress`, `registry`: judge the brokers, the progress in Kafka, and the schema registry.
- `kafka_progress`: asks for the progress, and whether the topics hold what it says.
"""

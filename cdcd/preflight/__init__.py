"""Finds out whether `cdcd run` would work: for `cdcd check`, and for each start of the daemon.

Before: `source` and `sink.kafka` ask the servers. After: `cli.commands.check` prints the findings;
`daemon.start_judgement` refuses a start for an error, and logs a warning.

- `check`: the order of the subjects. `findings`: one finding.
- `postgres_facts`, `postgres`: ask PostgreSQL; the order of its subjects.
- `server`, `slot`, `publication`, `selected_tables`, `replica_identity`, `privileges`: judge one subject of PostgreSQL
  each. `condition_findings` tries the conditions of snapshots. `column_findings` asks for columns; `column_rules`,
  `flat_rows`, `lost_values` judge them.
- `kafka`: asks the brokers; the order of its subjects. `kafka_progress`: asks for the progress, and whether the topics
  hold what it says.
- `brokers`, `topics`, `progress`: judge one subject of Kafka each. `registry`: asks the schema registry, and judges it.
- `host`: judges what the daemon needs on its own machine.
"""

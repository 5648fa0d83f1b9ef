"""`cdcd run`: supervision, start-up in its order, and the loop that moves rows from PostgreSQL to Kafka."""

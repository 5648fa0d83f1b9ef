"""What the tests of readers that others wrote do with rows of the tables `types` and `pairs`: each kind of change."""

from __future__ import annotations

CHANGES_OF_ROWS = (
    "UPDATE types SET t = 'new', n52 = id, flag = false, a = NULL, d = d + id::int WHERE id < 20",
    "UPDATE types SET t = NULL, raw = NULL, m = NULL WHERE id = 21",
    "UPDATE types SET id = id + 1000 WHERE id BETWEEN 10 AND 15",
    "DELETE FROM types WHERE id BETWEEN 16 AND 18",
    "INSERT INTO types (id, t) VALUES (17, 'again')",
    "UPDATE pairs SET number = -number, v = 'moved' WHERE number > 10",
    "UPDATE pairs SET number = 1 WHERE word = 'long'",
    "DELETE FROM pairs WHERE number BETWEEN 3 AND 5",
    "BEGIN; INSERT INTO pairs VALUES ('brief', 1, 'x'); DELETE FROM pairs WHERE word = 'brief'; COMMIT",
)

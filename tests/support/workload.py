# ruff: noqa: E501  (SQL: a line is easier to follow than a clause)
"""Tables of many shapes, and a workload of mixed transactions over them that runs inside the server.

`SCHEMA` makes five tables; `mix` runs transactions of about ten changes: inserts, updates (of the key too), deletes,
values that Avro cannot hold, unchanged TOAST, rolled back savepoints and rolled back transactions.
"""

from __future__ import annotations

from collections import Counter

import psycopg
from psycopg import sql

TABLES = (
    ("public", "orders"),
    ("public", "customers"),
    ("odd names", "Línea %"),
    ("public", "documents"),
    ("public", "ledger"),
)

SCHEMA = """
CREATE TYPE mood AS ENUM ('happy', 'sad', 'it''s "odd"');
CREATE DOMAIN price AS numeric(12,2) CHECK (value >= 0 OR value <> value);
CREATE TABLE orders (
    id bigint PRIMARY KEY, customer int, status text, note text, amount numeric(12,2), placed timestamptz, due date,
    paid boolean, details jsonb, tracking uuid, weight double precision, remark text);
CREATE TABLE customers (
    name varchar(80), born date, PRIMARY KEY (name, born), mood mood, tags text[], credit price, seen timestamp, score numeric);
CREATE SCHEMA "odd names";
CREATE TABLE "odd names"."Línea %" ("Id" int, id smallint, "it's" real, "na me" bytea, wait interval, at time, alarm timetz);
ALTER TABLE "odd names"."Línea %" ADD PRIMARY KEY ("Id", id);
CREATE TABLE documents (id uuid PRIMARY KEY, title text, body text, revision int);
ALTER TABLE documents ALTER body SET STORAGE EXTERNAL;
CREATE TABLE ledger (account int, delta numeric, memo text, at timestamptz);
ALTER TABLE ledger REPLICA IDENTITY FULL;

CREATE SEQUENCE moved AS int START 5001;

CREATE FUNCTION one_change(n int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE r int := (random() * 99)::int; i bigint; k bigint := 1 + (random() * 3000)::bigint; long text;
BEGIN
  CASE
  WHEN r < 30 THEN
    INSERT INTO orders VALUES (n, k, 'new', repeat('ñ', r), random() * 1000, clock_timestamp(), current_date + r, r % 2 = 0,
      jsonb_build_object('n', n, 'deep', jsonb_build_array(r, null, 'é')), gen_random_uuid(), r * 0.5, CASE r % 3 WHEN 0 THEN NULL ELSE 'x' || n END)
    ON CONFLICT DO NOTHING;
  WHEN r < 45 THEN
    UPDATE orders SET status = 'paid', paid = true, amount = CASE r WHEN 44 THEN 'NaN' ELSE amount + 1 END,
      placed = CASE r WHEN 43 THEN 'infinity' WHEN 42 THEN '4713-01-01 BC' ELSE placed END
    WHERE id = (SELECT id FROM orders WHERE id >= random() * n ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED);
  WHEN r < 50 THEN DELETE FROM orders WHERE id = (SELECT id FROM orders WHERE id >= random() * n ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED);
  WHEN r < 52 THEN UPDATE orders SET id = id + 1000000000000 WHERE id = (SELECT id FROM orders WHERE id >= random() * n ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED);
  WHEN r < 62 THEN
    INSERT INTO customers VALUES ('c' || k, CASE r WHEN 52 THEN '-infinity' ELSE '1970-01-01'::date + r END,
      (enum_range(NULL::mood))[1 + r % 3], ARRAY['a', NULL, '"q"', 'b,c', ''], r / 7.0, clock_timestamp(), r / 3.0)
    ON CONFLICT (name, born) DO UPDATE SET tags = customers.tags || 'again'::text, credit = 'NaN', seen = '294000-01-01 00:00:00';
  WHEN r < 66 THEN DELETE FROM customers WHERE ctid = (SELECT ctid FROM customers LIMIT 1 FOR UPDATE SKIP LOCKED);
  WHEN r < 76 THEN
    INSERT INTO "odd names"."Línea %" VALUES (k, r, r * 0.25, decode(md5(n::text), 'hex'), make_interval(months => r - 70, days => r, secs => -r * 1.5),
      CASE r WHEN 70 THEN '24:00' ELSE '01:02:03.5'::time END, '04:05:06.789-03:30')
    ON CONFLICT DO NOTHING;
  WHEN r < 80 THEN UPDATE "odd names"."Línea %" SET "Id" = nextval('moved'), "it's" = -1 WHERE ctid = (SELECT ctid FROM "odd names"."Línea %" LIMIT 1 FOR UPDATE SKIP LOCKED);
  WHEN r < 84 THEN DELETE FROM "odd names"."Línea %" WHERE ctid = (SELECT ctid FROM "odd names"."Línea %" OFFSET 3 LIMIT 1 FOR UPDATE SKIP LOCKED);
  WHEN r < 88 THEN
    SELECT string_agg(md5(random()::text), '') INTO long FROM generate_series(1, 120);
    INSERT INTO documents VALUES (gen_random_uuid(), 'doc ' || n, long, 0);
  WHEN r < 93 THEN UPDATE documents SET revision = revision + 1, title = title || '!' WHERE ctid = (SELECT ctid FROM documents LIMIT 1 FOR UPDATE SKIP LOCKED);
  WHEN r < 94 THEN UPDATE documents SET id = gen_random_uuid() WHERE ctid = (SELECT ctid FROM documents LIMIT 1 FOR UPDATE SKIP LOCKED);
  WHEN r < 97 THEN INSERT INTO ledger VALUES (k, r - 90, 'memo ' || r, clock_timestamp()), (k + 1, 90 - r, NULL, NULL);
  WHEN r < 98 THEN UPDATE ledger SET delta = delta + 1 WHERE ctid = (SELECT ctid FROM ledger LIMIT 1 FOR UPDATE SKIP LOCKED);
  ELSE DELETE FROM ledger WHERE ctid = (SELECT ctid FROM ledger LIMIT 1 FOR UPDATE SKIP LOCKED);
  END CASE;
END $$;

CREATE PROCEDURE mix(first int, transactions int, changes int) LANGUAGE plpgsql AS $$
BEGIN
  FOR t IN first .. first + transactions - 1 LOOP
    FOR c IN 1 .. changes LOOP
      PERFORM one_change(t * changes + c);
    END LOOP;
    IF t % 29 = 0 THEN
      BEGIN
        PERFORM one_change(t * changes);
        RAISE EXCEPTION 'undo this savepoint';
      EXCEPTION WHEN raise_exception THEN NULL;
      END;
    END IF;
    IF t % 31 = 0 THEN ROLLBACK; ELSE COMMIT; END IF;
  END LOOP;
END $$;
"""


def mix(connection: psycopg.Connection, first: int, transactions: int, changes: int = 10) -> None:
    """Run `transactions` transactions of `changes` changes. They are numbered from `first`; use no number twice."""
    connection.execute("CALL mix(%s, %s, %s)", (first, transactions, changes))


def content(connection: psycopg.Connection, schema: str, table: str) -> Counter[tuple[str | None, ...]]:
    """The table's rows as the texts of their columns, rendered by PostgreSQL."""
    columns = connection.execute(
        "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
        (sql.Identifier(schema, table).as_string(connection),),
    ).fetchall()
    texts = sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier(name)) for (name,) in columns)
    return Counter(
        connection.execute(sql.SQL("SELECT {} FROM {}").format(texts, sql.Identifier(schema, table))).fetchall()
    )

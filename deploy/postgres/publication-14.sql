-- PostgreSQL 14: the tables by name. Run it as the owner of the tables; the owner needs CREATE on the database.
-- New tables join with: ALTER PUBLICATION cdcd ADD TABLE ...

DO $$
DECLARE
    tables text;
BEGIN
    SELECT string_agg(format('%I.%I', n.nspname, c.relname), ', ' ORDER BY n.nspname, c.relname) INTO STRICT tables
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = 'public' AND c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND NOT c.relispartition;
    EXECUTE 'CREATE PUBLICATION cdcd FOR TABLE ' || tables;
END $$;

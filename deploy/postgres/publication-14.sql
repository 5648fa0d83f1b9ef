-- PostgreSQL 14: the tables by name. Run it as the owner of the tables; the owner needs CREATE on the database.
-- New tables join with: ALTER PUBLICATION cdcd ADD TABLE ...

-- A table without a replica identity must not be published: PostgreSQL would reject its updates and deletes. So this comes
-- first, and stops if there is one.
DO $$
DECLARE
    statements text;
BEGIN
    SELECT string_agg(format('ALTER TABLE %I.%I REPLICA IDENTITY FULL', n.nspname, c.relname), '; ') INTO statements
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = 'public' AND c.relkind = 'r' AND c.relpersistence = 'p' AND c.relreplident <> 'f'
      AND NOT EXISTS (SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid AND i.indimmediate
                      AND CASE c.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident ELSE false END);
    IF statements IS NOT NULL THEN
        RAISE EXCEPTION 'tables without a replica identity cannot be updated once they are published'
            USING HINT = 'Give each a primary key, or run: ' || statements;
    END IF;
END $$;

DO $$
DECLARE
    tables text;
BEGIN
    SELECT string_agg(format('%I.%I', n.nspname, c.relname), ', ' ORDER BY n.nspname, c.relname) INTO STRICT tables
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = 'public' AND c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND NOT c.relispartition;
    EXECUTE 'CREATE PUBLICATION cdcd FOR TABLE ' || tables;
END $$;

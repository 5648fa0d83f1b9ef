-- PostgreSQL 15 and later: whole schemas, so new tables join by themselves. Run it as a superuser.
-- If you are the owner of the tables and no superuser, run publication-14.sql.

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

CREATE PUBLICATION cdcd FOR TABLES IN SCHEMA public;

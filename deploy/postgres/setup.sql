-- What cdcd needs of PostgreSQL (14 to 18): a role with the least rights, the publication, and the table of requests.
--
--   psql -v ON_ERROR_STOP=1 -d shop -f setup.sql
--
-- Run it as a superuser. Without one, somebody who may make roles runs part 1, then the owner of the tables all of it.
-- It may run again: it makes what is missing, and takes nothing away.

-- 1. Role
-- Run it as a superuser; from PostgreSQL 16 on, as a role with CREATEROLE that has REPLICATION itself. The role has
-- no password: set one (\password), and allow it in pg_hba.conf. REPLICATION lets it read every published row, also
-- rows that row-level security hides, and drop slots of other roles.
DO $cdcd$
BEGIN
    IF EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'rds_replication') THEN
        IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'cdcd') THEN
            CREATE ROLE "cdcd" LOGIN CONNECTION LIMIT 20;
        END IF;
        GRANT rds_replication TO "cdcd";
    ELSIF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'cdcd') THEN
        CREATE ROLE "cdcd" LOGIN REPLICATION NOSUPERUSER NOCREATEDB NOCREATEROLE NOBYPASSRLS NOINHERIT CONNECTION LIMIT 20;
    ELSIF EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'cdcd' AND NOT (rolcanlogin AND rolreplication)) THEN
        ALTER ROLE "cdcd" LOGIN REPLICATION;
    END IF;
    IF NOT pg_catalog.has_database_privilege('cdcd', pg_catalog.current_database(), 'CONNECT') THEN
        EXECUTE pg_catalog.format('GRANT CONNECT ON DATABASE %I TO "cdcd"', pg_catalog.current_database());
    END IF;
END $cdcd$;

-- 2. Replica identities
-- Everybody may run it. PostgreSQL refuses updates and deletes of a published table without a replica identity. So
-- this stops before the publication if there is such a table.
DO $cdcd$
DECLARE
    statements text;
BEGIN
    SELECT pg_catalog.string_agg(
        pg_catalog.format('ALTER TABLE %I.%I REPLICA IDENTITY FULL', m.nspname, l.relname), '; ') INTO statements
    FROM (
        SELECT c.oid FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND NOT c.relispartition AND (n.nspname IN ('public'))
          AND NOT (n.nspname = 'cdcd' AND c.relname = 'requests')
          AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend d WHERE d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass
                          AND d.objid = c.oid AND d.deptype = 'e')
    ) given
    CROSS JOIN LATERAL (
        SELECT given.oid UNION SELECT t.relid::pg_catalog.oid FROM pg_catalog.pg_partition_tree(given.oid) t WHERE t.isleaf
    ) part (oid)
    JOIN pg_catalog.pg_class l ON l.oid = part.oid JOIN pg_catalog.pg_namespace m ON m.oid = l.relnamespace
    WHERE (l.relkind = 'r' AND l.relpersistence = 'p') AND NOT (l.relreplident = 'f' OR EXISTS (
        SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = l.oid AND i.indimmediate AND CASE l.relreplident
            WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident ELSE false END));
    IF statements IS NOT NULL THEN
        RAISE EXCEPTION 'tables without a replica identity cannot be updated once they are published'
            USING HINT = 'Give each a primary key, or run: ' || statements;
    END IF;
END $cdcd$;

-- 3. Publication
-- Run it as a superuser, or as the owner of the tables with CREATE on the database. New tables of "public" join by
-- themselves if a superuser runs this on PostgreSQL 15 or later; otherwise run it again after new tables.
DO $cdcd$
DECLARE
    missing text;
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_publication WHERE pubname = 'cdcd')
        AND (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user)
        AND pg_catalog.current_setting('server_version_num')::int >= 150000 THEN
        EXECUTE 'CREATE PUBLICATION "cdcd" FOR TABLES IN SCHEMA "public"';
    END IF;
    SELECT pg_catalog.string_agg(pg_catalog.format(
        CASE WHEN c.relkind = 'r' AND c.relhassubclass THEN 'ONLY %I.%I' ELSE '%I.%I' END, n.nspname, c.relname),
        ', ' ORDER BY n.nspname, c.relname) INTO missing
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND NOT c.relispartition AND (n.nspname IN ('public'))
      AND NOT (n.nspname = 'cdcd' AND c.relname = 'requests')
      AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend d WHERE d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass
                      AND d.objid = c.oid AND d.deptype = 'e')
      AND NOT EXISTS (SELECT FROM pg_catalog.pg_publication p JOIN pg_catalog.pg_publication_rel r ON r.prpubid = p.oid
                      WHERE p.pubname = 'cdcd' AND r.prrelid = c.oid)
      AND NOT EXISTS (SELECT FROM pg_catalog.pg_publication_tables p WHERE p.pubname = 'cdcd'
                      AND (p.schemaname = n.nspname AND p.tablename = c.relname OR EXISTS (
                          SELECT FROM pg_catalog.pg_partition_tree(c.oid) t
                          WHERE t.relid = pg_catalog.format('%I.%I', p.schemaname, p.tablename)::pg_catalog.regclass)));
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_publication WHERE pubname = 'cdcd') THEN
        IF missing IS NULL THEN
            RAISE EXCEPTION 'there are no tables to publish' USING HINT = 'Make the tables first';
        END IF;
        EXECUTE 'CREATE PUBLICATION "cdcd" FOR TABLE ' || missing;
    ELSIF missing IS NOT NULL THEN
        EXECUTE 'ALTER PUBLICATION "cdcd" ADD TABLE ' || missing;
    END IF;
END $cdcd$;

-- 4. Grants for the snapshot
-- Run it as a superuser, or as the owner of the tables. A snapshot reads the tables with SELECT. The default
-- privileges are for tables that the owners of today's tables make later. cdcd refuses to copy a table with row-level
-- security, unless the role has BYPASSRLS.
GRANT USAGE ON SCHEMA "public" TO "cdcd";
GRANT SELECT ON ALL TABLES IN SCHEMA "public" TO "cdcd";
DO $cdcd$
DECLARE
    one record;
BEGIN
    FOR one IN
        SELECT pg_catalog.pg_get_userbyid(c.relowner) AS owner FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND NOT c.relispartition AND (n.nspname IN ('public'))
          AND NOT (n.nspname = 'cdcd' AND c.relname = 'requests')
          AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend d WHERE d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass
                          AND d.objid = c.oid AND d.deptype = 'e')
          AND pg_catalog.pg_has_role(c.relowner, 'USAGE')
        UNION SELECT current_user
    LOOP
        EXECUTE pg_catalog.format('ALTER DEFAULT PRIVILEGES FOR ROLE %I IN SCHEMA "public" GRANT SELECT ON TABLES TO "cdcd"', one.owner);
    END LOOP;
END $cdcd$;

-- 5. Table of requests
-- Run it as a superuser, or as the owner of the publication. The table through which people ask the daemon: cdcd
-- snapshot, cdcd unpark, cdcd verify --repair. Whoever may INSERT into it may ask.
CREATE SCHEMA IF NOT EXISTS cdcd;
CREATE TABLE IF NOT EXISTS cdcd.requests (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    slot text NOT NULL,
    action text NOT NULL CHECK (action IN ('snapshot', 'unpark', 'discard', 'repair', 'pause', 'resume', 'stop')),
    table_schema text NOT NULL,
    table_name text NOT NULL,
    keys text,
    requested_by text NOT NULL DEFAULT session_user,
    requested_at timestamptz NOT NULL DEFAULT now()
);
GRANT USAGE ON SCHEMA cdcd TO "cdcd";
GRANT INSERT (slot, action, table_schema, table_name, keys) ON cdcd.requests TO "cdcd";
DO $cdcd$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_publication_tables WHERE pubname = 'cdcd'
                   AND schemaname = 'cdcd' AND tablename = 'requests') THEN
        ALTER PUBLICATION "cdcd" ADD TABLE cdcd.requests;
    END IF;
END $cdcd$;

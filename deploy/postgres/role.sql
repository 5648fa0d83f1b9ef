-- The role that cdcd connects as, with what it needs and nothing else. PostgreSQL 14 to 18.
--
--   psql -v ON_ERROR_STOP=1 -d shop -f role.sql        as a superuser
--   (from PostgreSQL 16 on: as a role with CREATEROLE that has REPLICATION itself)
--
-- Set its password or certificate yourself (\password cdcd), and let it in by pg_hba.conf:
--   hostssl  shop  cdcd  10.0.0.0/8  scram-sha-256      ("replication" is for physical standbys: not needed)
--
-- Know what REPLICATION means: such a role reads every published row, those behind row-level security too, and may
-- drop slots of others. It needs no privilege on the publication or on its tables for that.

CREATE ROLE cdcd LOGIN REPLICATION NOSUPERUSER NOCREATEDB NOCREATEROLE NOBYPASSRLS NOINHERIT CONNECTION LIMIT 20;

-- Only where the database does not let everybody in (REVOKE CONNECT ... FROM PUBLIC):
-- GRANT CONNECT ON DATABASE shop TO cdcd;

-- The role that cdcd connects as, with the least rights. PostgreSQL 14 to 18.
--
--   psql -v ON_ERROR_STOP=1 -d shop -f role.sql        as a superuser
--   (from PostgreSQL 16 on: as a role with CREATEROLE that has REPLICATION itself)
--
-- cdcd snapshot and cdcd unpark ask the daemon through a table: see requests.sql.
--
-- Set its password or certificate yourself (\password cdcd), and allow it in pg_hba.conf:
--   hostssl  shop  cdcd  10.0.0.0/8  scram-sha-256      ("replication" is for physical standbys: not needed)
--
-- A role with REPLICATION reads every published row, also rows that row-level security hides, and may drop slots of
-- other roles. It needs no privilege on the publication or on its tables for that.

CREATE ROLE cdcd LOGIN REPLICATION NOSUPERUSER NOCREATEDB NOCREATEROLE NOBYPASSRLS NOINHERIT CONNECTION LIMIT 20;

-- Only if the database does not admit every role (REVOKE CONNECT ... FROM PUBLIC):
-- GRANT CONNECT ON DATABASE shop TO cdcd;

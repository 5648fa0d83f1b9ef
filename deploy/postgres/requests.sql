-- The table through which people ask the daemon for something (cdcd snapshot, cdcd unpark). PostgreSQL 14 to 18.
--
--   psql -v ON_ERROR_STOP=1 -d shop -f requests.sql    as the owner of the publication (who needs CREATE on the
--                                                       database), or as a superuser
--
-- Run it after role.sql and publication-*.sql. Whoever may INSERT into this table may ask the daemon to read tables again,
-- and to discard parked events. The daemon looks at no table of this name that another role owns.

CREATE SCHEMA IF NOT EXISTS cdcd;
CREATE TABLE IF NOT EXISTS cdcd.requests (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    slot text NOT NULL,
    action text NOT NULL CHECK (action IN ('snapshot', 'unpark', 'discard')),
    table_schema text NOT NULL,
    table_name text NOT NULL,
    requested_by text NOT NULL DEFAULT session_user,
    requested_at timestamptz NOT NULL DEFAULT now()
);

-- Not the other columns: so a request names the role that has made it.
GRANT USAGE ON SCHEMA cdcd TO cdcd;
GRANT INSERT (slot, action, table_schema, table_name) ON cdcd.requests TO cdcd;

-- Not for a publication FOR ALL TABLES, which has the table already.
ALTER PUBLICATION cdcd ADD TABLE cdcd.requests;

-- The initial snapshot reads the tables with SELECT. Run it as the owner of the tables, or grant pg_read_all_data.
-- cdcd refuses a table with row-level security, unless the role has BYPASSRLS: it would read only some of the rows.

GRANT USAGE ON SCHEMA public TO cdcd;
GRANT SELECT ON ALL TABLES IN SCHEMA public TO cdcd;

-- For the initial snapshot: the tables are read with SELECT. Run it as their owner; or give pg_read_all_data instead.
-- A table with row-level security is refused rather than read in part, unless the role has BYPASSRLS.

GRANT USAGE ON SCHEMA public TO cdcd;
GRANT SELECT ON ALL TABLES IN SCHEMA public TO cdcd;

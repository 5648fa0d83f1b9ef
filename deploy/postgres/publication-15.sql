-- PostgreSQL 15 and later: whole schemas, so new tables join by themselves. Run it as a superuser.
-- If you are the owner of the tables and no superuser, run publication-14.sql.

CREATE PUBLICATION cdcd FOR TABLES IN SCHEMA public;

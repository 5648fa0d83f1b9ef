-- PostgreSQL 15 and up: whole schemas, so that new tables join by themselves. Run it as a superuser.
-- (The owner of the tables, without being a superuser, runs publication-14.sql.)

CREATE PUBLICATION cdcd FOR TABLES IN SCHEMA public;

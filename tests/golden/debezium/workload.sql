-- What Debezium's events are recorded of: every type of its documentation, and every kind of change.
--
-- A statement ends with a semicolon at the end of a line. A line that begins with "--!" begins a part.
-- The statements run in one session, each in its own transaction unless BEGIN says otherwise. After each part of changes,
-- the_end gets a row, and the recorder waits for it: the connector reads the catalog of now, not of the change.

--! tables
CREATE EXTENSION hstore;
CREATE EXTENSION ltree;
CREATE EXTENSION citext;
CREATE EXTENSION isn;
CREATE TYPE mood AS ENUM ('sad', 'ok', 'so, so');
CREATE TYPE pair AS (a int, b text);
CREATE DOMAIN price AS numeric(10,2);
CREATE DOMAIN paid AS price CHECK (value >= 0);
CREATE DOMAIN label AS varchar(20);

CREATE TABLE basic (
    id serial PRIMARY KEY, flag boolean, i2 smallint, i4 integer, i8 bigint, f4 real, f8 double precision,
    c5 char(5), vc varchar(20), vc0 varchar, t text, one "char", n name, o oid, raw bytea,
    j json, jb jsonb, x xml, u uuid
);
CREATE TABLE numbers (
    id bigint PRIMARY KEY, n52 numeric(5,2), n50 numeric(5), n0 numeric, n38 numeric(38,10), m money, p price, q paid
);
CREATE TABLE scales (id int PRIMARY KEY, below numeric(3,-2), above numeric(3,5));
CREATE TABLE specials (id int PRIMARY KEY, n0 numeric, n52 numeric(5,2), f4 real, f8 double precision);
CREATE TABLE times (
    id int PRIMARY KEY, d date, t0 time(0), t3 time(3), t6 time, ts0 timestamp(0), ts3 timestamp(3), ts4 timestamp(4),
    ts6 timestamp, tz0 timestamptz(0), tz3 timestamptz(3), tz6 timestamptz, z0 timetz(0), z6 timetz, iv interval,
    iv0 interval day to second(0)
);
CREATE TABLE bits (
    id int PRIMARY KEY, b bit, b1 bit(1), b2 bit(2), b8 bit(8), b12 bit(12), b64 bit(64), vb varbit, vb1 varbit(1),
    vb10 varbit(10), many bit(3)[]
);
CREATE TABLE net (
    id int PRIMARY KEY, ip inet, c cidr, mac macaddr, mac8 macaddr8, r4 int4range, r8 int8range, rn numrange,
    rt tsrange, rz tstzrange, rd daterange, mr int4multirange, lsn pg_lsn, snap txid_snapshot, tsv tsvector,
    tsq tsquery, jp jsonpath, reg regclass, xid8 xid8
);
CREATE TABLE shapes (
    id int PRIMARY KEY, p point, l line, s lseg, b box, h path, g polygon, c circle
);
CREATE TABLE shapes_required (id int PRIMARY KEY, p point NOT NULL, l line NOT NULL, b box NOT NULL, c circle NOT NULL);
CREATE TABLE extras (
    id int PRIMARY KEY, h hstore, l ltree, ci citext, book isbn, m mood, pr pair, lb label
);
CREATE TABLE arrays (
    id int PRIMARY KEY, i2 smallint[], i4 int[], i8 bigint[], o oid[], f4 real[], f8 double precision[], n numeric[],
    n52 numeric(5,2)[], flag boolean[], t text[], vc varchar(5)[], c3 char(3)[], raw bytea[], u uuid[], j json[],
    jb jsonb[], d date[], t6 time[], t3 time(3)[], z timetz[], ts6 timestamp[], ts3 timestamp(3)[], tz timestamptz[],
    ip inet[], c cidr[], mac macaddr[], r4 int4range[], rn numrange[], rz tstzrange[], rd daterange[], ci citext[],
    l ltree[], h hstore[], m mood[], pr pair[], p price[]
);
CREATE TABLE arrays_unknown (
    id int PRIMARY KEY, m money[], n name[], iv interval[], vb varbit[], x xml[], p point[], b box[], tsv tsvector[]
);
CREATE TABLE required (
    id int PRIMARY KEY, flag boolean NOT NULL, i2 smallint NOT NULL, i8 bigint NOT NULL, f4 real NOT NULL,
    f8 double precision NOT NULL, n0 numeric NOT NULL, n52 numeric(5,2) NOT NULL, m money NOT NULL, t text NOT NULL,
    raw bytea NOT NULL, jb jsonb NOT NULL, u uuid NOT NULL, d date NOT NULL, t6 time NOT NULL, tz timestamptz NOT NULL, z timetz NOT NULL, iv interval NOT NULL, b8 bit(8) NOT NULL,
    p point NOT NULL, a int[] NOT NULL, h hstore NOT NULL, l ltree NOT NULL, ci citext NOT NULL, e mood NOT NULL,
    ip inet NOT NULL, r4 int4range NOT NULL, tsv tsvector NOT NULL, n name NOT NULL
);
CREATE TABLE required_timestamp (id int PRIMARY KEY, ts3 timestamp(3) NOT NULL, ts6 timestamp NOT NULL);
CREATE TABLE defaults (
    id bigserial PRIMARY KEY, flag boolean DEFAULT true, i2 smallint DEFAULT 7, i4 int NOT NULL DEFAULT 8,
    i8 bigint DEFAULT 9, f4 real DEFAULT 1.5, f8 double precision DEFAULT 2.5, n0 numeric DEFAULT 1.25,
    n52 numeric(5,2) DEFAULT 1.5, m money DEFAULT 1.5, t text DEFAULT 'it''s', tf text DEFAULT upper('x'),
    vc varchar(9) NOT NULL DEFAULT 'short', raw bytea DEFAULT '\x01', jb jsonb DEFAULT '{"a": 1}',
    u uuid DEFAULT gen_random_uuid(), d date DEFAULT '2020-02-03', dn date DEFAULT CURRENT_DATE, t6 time DEFAULT '01:02:03',
    ts3 timestamp(3) DEFAULT '2020-02-03 04:05:06.789', ts6 timestamp DEFAULT now(),
    tz timestamptz DEFAULT '2020-02-03 04:05:06+00', tzn timestamptz NOT NULL DEFAULT now(), iv interval DEFAULT '1 day',
    b8 bit(8) DEFAULT B'00000101', e mood DEFAULT 'ok', ip inet DEFAULT '127.0.0.1', a int[] DEFAULT '{1,2}',
    nul int DEFAULT NULL, who text DEFAULT current_user, twice int GENERATED ALWAYS AS (i4 * 2) STORED,
    h hstore DEFAULT 'a=>1', p price DEFAULT 3
);
CREATE TABLE toast (
    id int PRIMARY KEY, n int, t text, vc varchar(9999), raw bytea, j json, jb jsonb, x xml, num numeric, num2 numeric(800,2),
    ta text[], va varchar(999)[], ia int[], la bigint[], ba bytea[], ua uuid[], da date[], ja jsonb[], fa float8[], na numeric[],
    h hstore, tsv tsvector, ci citext, l ltree, vb varbit, g polygon, sa smallint[], rn numrange
);
ALTER TABLE toast SET (toast_tuple_target = 128);
DO $$DECLARE c text; BEGIN FOR c IN SELECT attname FROM pg_attribute WHERE attrelid = 'toast'::regclass AND attnum > 0 AND attlen = -1 LOOP EXECUTE format('ALTER TABLE toast ALTER %I SET STORAGE EXTERNAL', c); END LOOP; END$$;
CREATE TABLE toast_full (id int PRIMARY KEY, n int, t text, raw bytea);
ALTER TABLE toast_full ALTER t SET STORAGE EXTERNAL, ALTER raw SET STORAGE EXTERNAL;
ALTER TABLE toast_full REPLICA IDENTITY FULL;
CREATE TABLE unlogged_identity (id int PRIMARY KEY, v text);
ALTER TABLE unlogged_identity REPLICA IDENTITY NOTHING;
CREATE TABLE by_index (id int PRIMARY KEY, code text NOT NULL, v text);
CREATE UNIQUE INDEX by_index_code ON by_index (code);
ALTER TABLE by_index REPLICA IDENTITY USING INDEX by_index_code;
CREATE TABLE unique_only (a int NOT NULL, b text NOT NULL, v text);
CREATE UNIQUE INDEX unique_only_b ON unique_only (b);
ALTER TABLE unique_only REPLICA IDENTITY USING INDEX unique_only_b;
CREATE TABLE keyless (a int, b text);
ALTER TABLE keyless REPLICA IDENTITY FULL;
CREATE TABLE two_keys (b text, a int, v text, PRIMARY KEY (a, b));
CREATE TABLE key_types (
    u uuid, d date, n numeric(6,2), tz timestamptz, m mood, raw bytea, v int, PRIMARY KEY (tz, u, d, n, m, raw)
);
CREATE TABLE emptied (id int PRIMARY KEY);
CREATE TABLE emptied_too (id int PRIMARY KEY);
CREATE TABLE altered (id int PRIMARY KEY, v text);
CREATE SCHEMA "Odd-schema";
CREATE TABLE "Odd-schema"."1st Täble" ("1d" int PRIMARY KEY, "a b" text, "c.d" text, "é" text, "_u" text, "Select" text);
CREATE TABLE the_end (part int PRIMARY KEY);
CREATE PUBLICATION golden FOR ALL TABLES;

--! rows before the snapshot
INSERT INTO basic VALUES (1, true, 1, 2, 3, 1.5, 2.5, 'ab', 'cd', 'ef', 'gh', 'x', 'a name', 42, '\x00ff10', '{"a" : 1}', '{"a" : 1}', '<a>b</a>', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11');
INSERT INTO basic (id) VALUES (2);
INSERT INTO numbers VALUES (1, 1.5, 12345, 1.500, 0.1, 12.34, 9.9, 8);
INSERT INTO times VALUES (1, '2020-02-29', '10:11:12', '10:11:12.5', '10:11:12.123456', '2020-02-29 10:11:12', '2020-02-29 10:11:12.5', '2020-02-29 10:11:12.1234', '2020-02-29 10:11:12.123456', '2020-02-29 10:11:12+02', '2020-02-29 10:11:12.5+02', '2020-02-29 10:11:12.123456+02', '10:11:12+02', '10:11:12.123456-03:30', '1 year 2 mons 3 days 04:05:06.78', '1 day');
INSERT INTO arrays (id, i4, t, n52, tz) VALUES (1, '{1,NULL}', '{a,NULL}', '{1.5}', '{2020-02-29 10:11:12.5+02}');
INSERT INTO extras VALUES (1, 'a=>1, b=>NULL', 'Top.Science', 'CiText', '978-0-393-04002-9', 'so, so', '(1,x)', 'label');
INSERT INTO shapes VALUES (1, '(1,2)', '{1,2,3}', '[(1,2),(3,4)]', '(3,4),(1,2)', '[(1,2),(3,4)]', '((0,0),(1,0),(0,1))', '<(1,2),3>');
INSERT INTO defaults (id) VALUES (1);
INSERT INTO times (id, d, t3, t6, ts3, ts6, tz6, z6) VALUES (21, 'infinity', '24:00', '24:00', 'infinity', 'infinity', 'infinity', '24:00+00'), (22, '-infinity', '0:00', '23:59:59.999999', '-infinity', '-infinity', '-infinity', '23:59:59.999999-15:59'), (23, '4713-01-01 BC', NULL, NULL, '4713-01-01 BC', '1969-12-31 23:59:59.999999', '4713-01-01 00:00+00 BC', NULL);
INSERT INTO specials VALUES (4, 'NaN', 'NaN', 'NaN', 'Infinity'), (5, 1.50, 1.5, 1e-45, 5e-324);
INSERT INTO bits VALUES (5, B'1', B'0', B'10', B'00000101', B'000000000101', (repeat('0', 64))::bit(64), B'101', B'1', B'1010101010', '{101}');
INSERT INTO net (id, ip, c, mac, r4, rz, rd, tsv) VALUES (4, '192.168.1.1/24', '10.0.0.0/8', '08:00:2b:01:02:03', '[1,10)', '[2020-01-01 00:00+02,)', '[2020-01-01,2020-01-02]', 'a:1');
INSERT INTO required VALUES (1, true, 1, 1, 1, 1, 1, 1, 1, 't', '\x01', '1', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '2020-01-01', '1:00', '2020-01-01', '1:00+00', '1s', B'00000001', '(1,2)', '{1}', 'a=>1', 'l', 'c', 'ok', '1.2.3.4', '[1,2)', 'a', 'n');

--! changes
INSERT INTO basic VALUES
    (3, true, 32767, 2147483647, 9223372036854775807, 'NaN', 'NaN', 'ab', 'cd', '', '', '', '', 4294967295, '', '1', '"x"', '<a/>', '00000000-0000-0000-0000-000000000000');
INSERT INTO basic VALUES
    (4, false, -32768, -2147483648, -9223372036854775808, 'Infinity', '-Infinity', 'é', 'ünï', 'e"s\c/', E'tab\tnl\ncr\rbs\bff\fq"b\\s/c\x01\x1f\x7f', 'z', 'n"n', 0, '\xdeadbeef00ff', '{"é": [1, null, "\u00e9"], "x":  1.0}', '{"é": [1, null, "\u00e9"], "x": 1.0}', '<?xml version="1.0"?><é/>', 'ffffffff-ffff-ffff-ffff-ffffffffffff');
INSERT INTO basic (id, f4, f8, t) VALUES
    (5, 0.1, 0.1, 'emoji 😀, é, €, ' || chr(8232) || chr(55295) || chr(65533)), (6, 1e10, 1e10, '<>&''='), (7, 1e-5, 1e-5, 'null'),
    (8, 1e7, 1e7, ''), (9, 9999999, 9999999, ' '), (10, 1e-3, 1e-3, NULL), (11, '-0', '-0', NULL), (12, 3.4028235e38, 1.7976931348623157e308, NULL),
    (13, 1e-45, 5e-324, NULL), (14, 2e-3, 2.0e-3, NULL), (15, 16777216, 9007199254740993, NULL), (16, 123456.789, 123456789.123456789, NULL),
    (17, 2e23, 2e23, NULL), (18, 100, 1e21, NULL), (19, 0.3, 0.30000000000000004, NULL), (20, 8.41e21, 2.2250738585072014e-308, NULL);
UPDATE basic SET t = 'new' WHERE id = 3;
UPDATE basic SET id = 300, t = 'moved' WHERE id = 3;
DELETE FROM basic WHERE id = 300;
DELETE FROM basic WHERE id = 2;
INSERT INTO numbers VALUES
    (2, 999.99, -12345, 123456789012345678901234567890.123456789, 1234567890123456789012345678.0123456789, '-1234567.89', -0.01, 0), (3, 0, 0, 0, 0, 0, 0, 0),
    (4, -1, 1, 100, -0.0000000001, 0.1, 1, 1), (5, 1.28, 128, 0.000, 1, '92233720368547758.07', 2.55, 2.56), (6, -1.28, -128, 1e30, -1, '-92233720368547758.08', NULL, NULL),
    (7, 0.1, 5, 0.00000000000000000001, 5, 5, 5, 5), (8, 10, 10, 10.0, 10, 10, 10, 10);
INSERT INTO scales VALUES (1, 12300, 0.00123);
INSERT INTO specials VALUES (1, 'NaN', 'NaN', 'NaN', 'NaN'), (2, 'Infinity', NULL, 'Infinity', 'Infinity'), (3, '-Infinity', NULL, '-Infinity', '-Infinity');
INSERT INTO times VALUES
    (2, '1969-12-31', '00:00', '23:59:59.999', '23:59:59.999999', '1969-12-31 23:59:59', '1969-12-31 23:59:59.999', '1969-12-31 23:59:59.9999', '1969-12-31 23:59:59.999999', '1969-12-31 23:59:59+00', '1969-12-31 23:59:59.999+00', '1969-12-31 23:59:59.999999+00', '23:59:59+15', '23:59:59.999999-15:59', '-1 year -2 mons +3 days -04:05:06.78', '-1 day'),
    (3, '0001-01-01', '01:00', '01:00', '01:00', '0001-01-01', '0001-01-01', '0001-01-01', '0001-01-01', '0001-01-01 00:00+00', '0001-01-01 00:00+00', '0001-01-01 00:00+00', '01:00+00', '01:00:00.1+00', '0', '0'),
    (4, '9999-12-31', '12:00', '12:00:00.001', '12:00:00.000001', '9999-12-31 23:59:59', '9999-12-31 23:59:59.999', '9999-12-31 23:59:59.9999', '9999-12-31 23:59:59.999999', '9999-12-31 23:59:59+00', '9999-12-31 23:59:59.999+00', '9999-12-31 23:59:59.999999+00', '12:00-08', '12:00:00.000001+05:45', '178000000 years', '106751991 days'),
    (5, '2262-04-11', '12:34:56', '12:34:56.7', '12:34:56.789', '2262-04-11 23:47:16', '2262-04-11 23:47:16.854', '2262-04-11 23:47:16.8547', '2262-04-11 23:47:16.854775', '2020-01-01 00:00+00', '2020-01-01 00:00:00.12+00', '2020-01-01 00:00:00.1234+00', '12:34+01', '12:34:56.7+01', '1 mon', '00:00:01');
INSERT INTO times (id, d) VALUES (6, 'infinity'), (7, '-infinity'), (8, '4713-01-01 BC'), (9, '5874897-12-31');
INSERT INTO times (id, ts0, ts3, ts4, ts6, tz0, tz3, tz6) VALUES
    (10, 'infinity', 'infinity', 'infinity', 'infinity', 'infinity', 'infinity', 'infinity'),
    (11, '-infinity', '-infinity', '-infinity', '-infinity', '-infinity', '-infinity', '-infinity'),
    (12, '4713-01-01 BC', '4713-01-01 BC', '4713-01-01 BC', '4713-01-01 00:00:00.5 BC', '4713-01-01 00:00+00 BC', '4713-01-01 00:00+00 BC', '4713-01-01 00:00+00 BC'),
    (13, '294276-12-31 23:59:59', '294276-12-31 23:59:59.999', '294276-12-31 23:59:59.9999', '294276-12-31 23:59:59.999999', '294276-12-31 23:59:59+00', '294276-12-31 23:59:59.999+00', '294276-12-31 23:59:59.999999+00');
INSERT INTO times (id, t0, t3, t6) VALUES (14, '24:00:00', '24:00:00', '24:00:00');
INSERT INTO times (id, z0, z6) VALUES (15, '24:00:00+00', '24:00:00+00');
INSERT INTO times (id, iv, iv0) VALUES (16, '1.000001 seconds', '90 seconds'), (17, '0.1 seconds', '1 hour'), (18, '-0.000001 seconds', '-1 second'), (19, '1 mon -1 day', '25 hours'), (20, '100 years 11 mons 31 days 23:59:59.999999', '1 day 02:03:04');
UPDATE times SET d = '2021-01-01' WHERE id = 1;
INSERT INTO bits VALUES
    (1, B'1', B'0', B'10', B'00000101', B'000000000101', B'1000000000000000000000000000000000000000000000000000000000000001', B'101', B'1', B'1010101010', '{101,001}'),
    (2, B'0', B'1', B'00', B'00000000', B'000000000000', (repeat('0', 64))::bit(64), B'', B'', B'', '{}'), (3, B'1', B'1', B'11', B'11111111', B'111111111111', (repeat('1', 64))::bit(64), (repeat('10', 20))::varbit, B'0', B'0000000001', NULL);
INSERT INTO bits (id) VALUES (4);
INSERT INTO net VALUES
    (1, '192.168.1.1', '10.0.0.0/8', '08:00:2b:01:02:03', '08:00:2b:01:02:03:04:05', '[1,10)', '[1,10]', '[1.5,2.5]', '[2020-01-01, 2020-01-02)', '[2020-01-01 00:00+00, 2020-01-02 12:30:00.5+02)', '[2020-01-01,2020-01-02]', '{[1,2),[5,6)}', '16/B374D848', '10:20:10,14,15', 'a fat cat sat:5', 'fat & rat', '$.a[*]', 'pg_class', '123'),
    (2, '2001:db8::1/64', '::/0', 'ff:ff:ff:ff:ff:ff', '00:00:00:00:00:00:00:00', 'empty', '(,)', '(,5)', 'empty', '[infinity,)', '(,2020-01-01)', '{}', '0/0', NULL, '', '', NULL, NULL, NULL);
INSERT INTO net (id) VALUES (3);
INSERT INTO shapes VALUES
    (2, '(-1.5,0)', '{-1,0,0.5}', '[(0,0),(0,0)]', '(0,0),(0,0)', '((1,2),(3,4),(5,6))', '((0,0),(1,0),(0,1),(0,0))', '<(0,0),0>'), (4, '(NaN,Infinity)', '{0,1,0}', '[(1e20,1e-20),(3,4)]', '(1,2),(3,4)', '((1,2))', '((1,2))', '<(1.1,2.2),3.3>');
INSERT INTO shapes (id) VALUES (3);
INSERT INTO shapes_required VALUES (1, '(1,2)', '{1,2,3}', '(3,4),(1,2)', '<(1,2),3>');
DELETE FROM shapes_required WHERE id = 1;
INSERT INTO extras VALUES
    (2, '', '', '', '0-393-04002-X', 'sad', '(,)', ''), (4, '"a b"=>"c\"d", "é"=>"\\", z=>"", aa=>1, bb=>2, key=>value, "x"=>NULL, k1=>v1, k2=>v2', 'a.b.c', 'É', '978-0-393-04002-9', 'ok', '(1,"a b")', 'é');
INSERT INTO extras (id) VALUES (3);
INSERT INTO arrays VALUES
    (2, '{1,NULL,-32768}', '{1,NULL,2}', '{1,NULL}', '{1,4294967295}', '{1.5,NULL,NaN}', '{2.5,NULL,-Infinity}', '{1.50,NULL,100}', '{1.5,NULL,100}', '{t,NULL,f}', '{a,NULL,"b c","d\"e",""}', '{ab,NULL}', '{a,NULL}', '{"\\x00ff",NULL}', '{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11,NULL}', '{"{\"a\": 1}",NULL}', '{"{\"a\": 1}",NULL}', '{2020-02-29,NULL,1969-12-31}', '{10:11:12.123456,NULL}', '{10:11:12.5,NULL}', '{10:11:12.123456+02,NULL}', '{2020-02-29 10:11:12.123456,NULL}', '{2020-02-29 10:11:12.5,NULL}', '{2020-02-29 10:11:12.123456+02,NULL,1969-12-31 23:59:59+00}', '{1.2.3.4,NULL}', '{10.0.0.0/8,NULL}', '{08:00:2b:01:02:03,NULL}', '{"[1,10)",NULL}', '{"[1.5,2.5]",NULL}', '{"[2020-01-01 00:00+00,)",NULL}', '{"[2020-01-01,2020-01-03)",NULL}', '{CiText,NULL}', '{a.b,c}', '{a=>1,NULL}', '{ok,sad}', '{"(1,x)",NULL}', '{1.5,NULL}');
INSERT INTO arrays VALUES
    (3, '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}');
INSERT INTO arrays (id) VALUES (4);
INSERT INTO arrays (id, m) VALUES (5, '{ok,NULL}');
INSERT INTO arrays (id, i4) VALUES (6, '{{1,2},{3,4}}');
INSERT INTO arrays (id, i4) VALUES (7, '[0:1]={1,2}');
INSERT INTO arrays (id, t) VALUES (8, '{{a,b},{c,NULL}}');
INSERT INTO arrays (id, l) VALUES (9, '{a.b,NULL}');
INSERT INTO arrays (id, d) VALUES (10, '{infinity,-infinity}');
INSERT INTO arrays (id, ts6, ts3) VALUES (11, '{infinity,-infinity}', '{infinity,-infinity}');
INSERT INTO arrays (id, tz) VALUES (12, '{infinity,-infinity}');
INSERT INTO arrays (id, n, n52) VALUES (13, '{NaN}', '{NaN}');
INSERT INTO arrays_unknown VALUES (1, '{1.5}', '{n}', '{1 day}', '{101}', '{<a/>}', '{"(1,2)"}', '{(1,2),(3,4)}', '{a}');
INSERT INTO required VALUES (2, false, 2, 2, 2, 2, 2, 2, 2, 'u', '\x02', '2', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '2020-01-02', '2:00', '2020-01-02', '2:00+00', '2s', B'00000010', '(2,3)', '{2}', 'a=>2', 'm', 'd', 'sad', '1.2.3.5', '[2,3)', 'b', 'm');
UPDATE required SET i2 = 3 WHERE id = 2;
UPDATE required SET id = 3 WHERE id = 2;
DELETE FROM required WHERE id = 3;
INSERT INTO required_timestamp VALUES (1, '2020-01-01', '2020-01-01');
DELETE FROM required_timestamp;
INSERT INTO defaults (id) VALUES (2);
INSERT INTO defaults (id, flag, i2, i8, f4, f8, n0, n52, m, t, tf, raw, jb, u, d, dn, t6, ts3, ts6, tz, iv, b8, e, ip, a, who, h, p)
    VALUES (3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
DELETE FROM defaults WHERE id = 3;
INSERT INTO toast SELECT 1, 1, repeat('t', 300), repeat('v', 300), convert_to(repeat('b', 300), 'UTF8'), ('"' || repeat('j', 300) || '"')::json, ('"' || repeat('j', 300) || '"')::jsonb, ('<x>' || repeat('x', 300) || '</x>')::xml, repeat('9', 700)::numeric, repeat('8', 700)::numeric,
    array_fill('t'::text, ARRAY[100]), array_fill('v'::varchar, ARRAY[100]), array_fill(1, ARRAY[100]), array_fill(2::bigint, ARRAY[100]), array_fill('\x62'::bytea, ARRAY[100]), array_fill('a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid, ARRAY[40]), array_fill('2020-01-01'::date, ARRAY[100]), array_fill('1'::jsonb, ARRAY[60]), array_fill(1.5::float8, ARRAY[100]), array_fill(1.5::numeric, ARRAY[100]),
    hstore('h', repeat('h', 300)), (SELECT string_agg('w' || g, ' ')::tsvector FROM generate_series(1, 100) g), repeat('c', 300), (repeat('l.', 100) || 'l')::ltree, repeat('10', 1500)::varbit, ('(' || repeat('(0,0),', 40) || '(1,1))')::polygon, array_fill(3::smallint, ARRAY[200]), numrange(1, repeat('9', 900)::numeric);
UPDATE toast SET n = 2 WHERE id = 1;
UPDATE toast SET id = 2 WHERE id = 1;
UPDATE toast SET t = 'short', jb = NULL WHERE id = 2;
DELETE FROM toast WHERE id = 2;
INSERT INTO toast_full VALUES (1, 1, repeat('t', 2500), convert_to(repeat('b', 2500), 'UTF8'));
UPDATE toast_full SET n = 2 WHERE id = 1;
UPDATE toast_full SET id = 2 WHERE id = 1;
DELETE FROM toast_full WHERE id = 2;
INSERT INTO unlogged_identity VALUES (1, 'v');
INSERT INTO by_index VALUES (1, 'c', 'v');
UPDATE by_index SET v = 'w' WHERE id = 1;
UPDATE by_index SET id = 2 WHERE id = 1;
UPDATE by_index SET code = 'd' WHERE id = 2;
DELETE FROM by_index WHERE id = 2;
INSERT INTO unique_only VALUES (1, 'b', 'v');
UPDATE unique_only SET b = 'c' WHERE a = 1;
DELETE FROM unique_only WHERE a = 1;
INSERT INTO keyless VALUES (1, 'b'), (NULL, NULL);
UPDATE keyless SET b = 'c' WHERE a = 1;
DELETE FROM keyless;
INSERT INTO two_keys VALUES ('b', 1, 'v');
UPDATE two_keys SET v = 'w';
UPDATE two_keys SET b = 'c';
DELETE FROM two_keys;
INSERT INTO key_types VALUES ('a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '2020-01-01', 1.5, '2020-01-01 00:00:00.5+00', 'ok', '\x0102', 1);
UPDATE key_types SET n = 2.5;
DELETE FROM key_types;
INSERT INTO emptied VALUES (1);
TRUNCATE emptied, emptied_too;
TRUNCATE emptied RESTART IDENTITY CASCADE;
SELECT pg_logical_emit_message(true, 'prefix', 'text é');
SELECT pg_logical_emit_message(false, 'outside', '\x00ff'::bytea);
BEGIN;
INSERT INTO emptied VALUES (2), (3);
SELECT pg_logical_emit_message(true, 'inside', '');
INSERT INTO emptied_too VALUES (2);
INSERT INTO "Odd-schema"."1st Täble" VALUES (0, 'a', 'c', 'é', 'u', 's');
SAVEPOINT one;
DELETE FROM emptied WHERE id = 2;
RELEASE SAVEPOINT one;
COMMIT;
BEGIN;
INSERT INTO emptied VALUES (4);
SELECT pg_logical_emit_message(false, 'from a rollback', 'x');
ROLLBACK;
INSERT INTO "Odd-schema"."1st Täble" VALUES (1, 'a', 'c', 'é', 'u', 's');
UPDATE "Odd-schema"."1st Täble" SET "1d" = 2 WHERE "1d" = 1;
DELETE FROM "Odd-schema"."1st Täble" WHERE "1d" = 2;
INSERT INTO altered VALUES (1, 'a');
--! changes: a column more
ALTER TABLE altered ADD COLUMN w int NOT NULL DEFAULT 5;
INSERT INTO altered VALUES (2, 'b', 6);
UPDATE altered SET v = 'c' WHERE id = 1;
--! changes: a column less
ALTER TABLE altered DROP COLUMN v;
INSERT INTO altered VALUES (3, 7);
--! changes: another name, another type
ALTER TABLE altered RENAME COLUMN w TO x;
ALTER TABLE altered ALTER COLUMN x TYPE numeric(6,2);
INSERT INTO altered VALUES (4, 8);
--! changes: another label
ALTER TYPE mood ADD VALUE 'glad' BEFORE 'ok';
INSERT INTO extras (id, m) VALUES (5, 'glad');
--! changes: from another server
SELECT pg_replication_origin_create('elsewhere');
SELECT pg_replication_origin_session_setup('elsewhere');
BEGIN;
SELECT pg_replication_origin_xact_setup('0/ABCDEF', '2020-01-01 00:00:00.123456+00');
INSERT INTO emptied VALUES (5);
COMMIT;
SELECT pg_replication_origin_session_reset();

"""The codecs, one file a family of PostgreSQL types: a value's bytes or text -> Avro.

A new family is one more file: codecs that say what they are (`base.Codec`), and a function `register` that adds their
types to the registry; `lookup` lists the file. Readers learn of its types in `cdcd.avro.type_forms`.
"""

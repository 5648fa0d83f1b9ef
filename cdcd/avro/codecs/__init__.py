"""The codecs, one file for each family of PostgreSQL types: a value's binary form or text -> Avro.

To add a family, add a file with its codecs (subclasses of `base.Codec`) and a function `register`, which adds their
types to the registry. List the file in `lookup`, and its types in `cdcd.avro.type_forms`, for readers.
"""

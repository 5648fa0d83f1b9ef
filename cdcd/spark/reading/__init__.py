"""The topics as DataFrames: offsets, cuts, writer schemas, types, decoding."""

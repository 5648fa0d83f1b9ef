"""The daemon's settings: their names and bounds, their sources, and the file that describes them.

- `settings`: every setting. `layers`, `loading`: read them from files and the environment.
- `reference`: prints them, with the secrets masked. `transport_security`: finds connections without TLS.
"""

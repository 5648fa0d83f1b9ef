"""The parts of `cdcd init`, in their order.

- `postgres`: who has connected, which tables there are; later, it runs the SQL. `answers`: the options, and questions.
- `kafka`: how many brokers there are, and which ACLs are missing. `first_settings`: the settings, from both.
- `cautions`: what these settings are warned of.
- `files`: writes what is made. `commands.init` puts them together.
"""

"""The command line: parses arguments, runs commands, prints results and errors.

- `main`: the entry point and the exit codes. `parser`: all commands, options and help texts.
- `commands`: one file for each command. `event_text`: how commands print events.
"""

"""The command line: `parser` has all options, `main` runs a command, `commands` has one file for each of them."""

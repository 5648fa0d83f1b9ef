"""The command line: the parser, the exit codes, one file a command under `commands`."""

"""`cdcd verify`: compares the rows that the topics give with the rows of the tables, at one exact LSN."""

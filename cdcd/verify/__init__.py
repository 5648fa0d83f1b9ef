"""`cdcd verify`: what the topics fold to, compared with the tables at one exact LSN."""

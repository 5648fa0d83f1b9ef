"""`cdcd check`: one judge a subject. Nothing is changed."""

"""`cdcd check`: facts come through `source` and `sink.kafka`, one judge a subject says what they mean."""

"""Lake tables that follow the topics: plan, run log, merge, targets."""

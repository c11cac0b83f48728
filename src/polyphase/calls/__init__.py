"""From a record to a launch, on whatever device; and the same call again."""

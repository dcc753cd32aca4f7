"""Who answers: a batched transformer, a table, or a script."""

"""Who answers: a language model, a served one, a table, or a script."""

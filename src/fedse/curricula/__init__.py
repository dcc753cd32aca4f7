"""Which tasks a site explores in a round, how often and how hot."""

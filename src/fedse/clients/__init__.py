"""One site's half of a round: what it plays, remembers, learns and hands out."""

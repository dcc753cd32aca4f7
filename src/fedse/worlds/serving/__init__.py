"""Our worlds offered to others, in the protocol of OpenEnv's environment servers."""

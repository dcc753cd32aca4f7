"""An adapter of a run behind the OpenAI chat-completions protocol, so that others can test the agent."""

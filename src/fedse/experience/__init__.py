"""What a client keeps of its episodes: a buffer, an episode log, exports."""

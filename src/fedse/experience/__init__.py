"""What a client remembers: filters that choose, a buffer that keeps."""

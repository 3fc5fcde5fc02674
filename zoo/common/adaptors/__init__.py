"""The adaptors of the paper: from observation spaces to networks, and from networks to action spaces."""

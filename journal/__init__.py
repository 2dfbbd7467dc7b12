"""The journal: events, their encoding, and the stores that keep them."""

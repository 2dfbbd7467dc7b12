"""``everact timeline``: what a run did when, as text, Mermaid and HTML."""

"""Supervision: restart strategies and backoff, knowing nothing of workflows."""

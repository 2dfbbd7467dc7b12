"""Helpers that several tests share: ``from support.chaos import ...``; what is in here is no test."""

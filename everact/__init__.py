"""Durable workflows as actors.

Layers, low to high: journal < supervision < actors < cluster < everact.
"""

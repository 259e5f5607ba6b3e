"""Domains whose truth is known: simulated logs, and the exact value of any policy in them."""

"""Requests one after another: what is forgotten now, what comes back later, and what it costs in the end."""

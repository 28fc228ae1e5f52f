"""Shared by every room: errors, files, the hub, results kept by content, provenance, records and versions."""

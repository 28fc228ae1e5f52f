"""Attacks on models that have forgotten: what comes back, beside what comes back of the retrained model."""

"""The method in pure torch: derivatives of Phi, the two loops, the penalty schedule. Start at ``objective.py``."""

"""Unlearning from Python, on a model that is loaded already: the same engine as the command line's."""

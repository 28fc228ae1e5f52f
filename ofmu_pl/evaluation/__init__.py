"""Measures a model: scores of rows, suites of metrics, the retrained model, tables, samples and pictures."""

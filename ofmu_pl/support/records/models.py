"""Names of the models that records tell apart, as ``results.json`` and ``attacks.json`` have them."""

UNLEARNED, RETRAINED, TARGET = MODELS = ("unlearned", "retrained", "target")
"""The model that was attacked, the one that never saw the forgotten rows, and the one that forgot nothing."""
SECOND = "second retrained"
"""One more retrained model, where it is at hand: how far two models are apart that hold nothing."""
HELD_OUT = "held_out"
"""Stands in for a retrained model that is not at hand: the unlearned model, asked for held-out rows."""
CONTROLS = (RETRAINED, HELD_OUT)  # what the unlearned model is compared with, the better one first
BEFORE = "before"  # the model before a run, in its own results; attacks call it the target

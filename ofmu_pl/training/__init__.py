"""Everything around the steps of a run: checkpoints, resuming, stopping, exporting, run folders, progress."""

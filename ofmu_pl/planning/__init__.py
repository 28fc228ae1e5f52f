"""What memory and work a run would take, found without its data and its weights."""

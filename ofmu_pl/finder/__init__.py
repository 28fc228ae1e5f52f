"""Where the rows of one person are."""

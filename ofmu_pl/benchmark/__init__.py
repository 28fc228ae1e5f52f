"""Every method in every scenario with every seed: jobs, their records, and the search for settings."""

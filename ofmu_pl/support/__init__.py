"""What every room uses: errors, files, the hub, what is kept by content, provenance and the results' version."""

"""What is made of several runs."""

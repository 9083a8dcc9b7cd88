"""What an operator gets to work with: its batch, stores and failures, what it reports, and how blocks travel."""

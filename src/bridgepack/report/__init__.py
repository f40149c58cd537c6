"""What people see: progress, summaries and pictures for the terminal."""

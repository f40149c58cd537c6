"""What rules are, what they judge, and how they run; it knows no rule."""

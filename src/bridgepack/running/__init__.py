"""What runs inside the jobs of a launch: the run's folder, the training job, and its guard."""

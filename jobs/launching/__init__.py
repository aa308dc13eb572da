"""Plans a job on an environment, starts it and follows the run."""

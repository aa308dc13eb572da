"""Azure ML's first API, asked through azureml-core, which lives in an environment of its own."""

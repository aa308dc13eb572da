"""Talk to Azure ML, for the engines and for the verbs."""

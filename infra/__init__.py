"""Declares the environment (storage, workspace, registry, clusters) as one Pulumi stack."""

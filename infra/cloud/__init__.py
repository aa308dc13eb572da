"""The cloud stacks: dev, test and prod on Azure."""

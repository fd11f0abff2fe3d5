"""What is behind the public names of replicax; it can change from one version to the next."""

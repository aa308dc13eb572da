"""Unpacks published archives into the folders that trainers read."""

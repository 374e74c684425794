"""Compiles what a candidate compiles, away from any measurement."""

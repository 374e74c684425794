"""UNTRUSTED: what runs in the candidate's process, which may read and change all of it. Imports `shared` alone."""

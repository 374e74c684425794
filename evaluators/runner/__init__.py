"""UNTRUSTED: the code of the candidate's process. A candidate may read and change all of it. Imports only `shared`."""

"""TRUSTED: compiles what a candidate compiles, away from any measurement. Candidates and compilers run in runners."""

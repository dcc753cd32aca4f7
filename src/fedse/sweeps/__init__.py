"""Many runs from one file: which ones, and how they are worked off."""

"""What is measured of the adapter that a site plays with."""

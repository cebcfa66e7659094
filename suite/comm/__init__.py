"""`stagebench comm`: communication alone, planned, launched and stored as cases of training are."""

"""`stagebench comm`: communication by itself, planned, launched and stored as cases of training are."""

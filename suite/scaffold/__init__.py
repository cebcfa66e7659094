"""The package that `stagebench new-adapter` writes: stubs, each with a description of the code to write."""

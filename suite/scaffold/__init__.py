"""A first adapter of your own: a package of stubs, each of which says what to write in its place."""

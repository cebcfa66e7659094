"""A stranger's first adapter: a package of stubs, each of which says what to write in its place."""

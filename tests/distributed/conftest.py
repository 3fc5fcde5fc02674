"""Its place is what it is for: the tests of this folder and of those in it import the helpers beside it."""

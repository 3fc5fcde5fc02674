"""Put this folder on the import path: its tests, and the tests of the folders in it, import the helpers beside it."""

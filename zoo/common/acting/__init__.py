"""Acting: behavior policies, and the forward pass in NumPy or in a graph that they act with."""

"""Mathematics: returns, distributions, quantiles, running moments, optimizers."""

"""Parts that all engines share: registers, order and effect of asynchronous statements,
convergence."""

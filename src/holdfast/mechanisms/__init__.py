"""How answers are made: coins (the default), sampled rows + Laplace noise, and what people used before."""

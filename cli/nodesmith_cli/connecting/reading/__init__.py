"""Reading an account and a cluster into the values of `observed`. Nothing is written."""

"""Recurrent networks (LSTM, GRU), in numpy and torch."""

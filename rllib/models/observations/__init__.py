"""Conversion of observations to the inputs of a network: encoders, filters, masks, torsos."""

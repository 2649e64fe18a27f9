"""The form of calls: options, signatures, retries."""

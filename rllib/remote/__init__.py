"""Runs and checkpoints in remote storage: folders of fsspec, and repositories of the Hugging Face Hub."""

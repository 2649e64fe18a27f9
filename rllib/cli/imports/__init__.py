"""Commands that take over trained models of other libraries, a module each."""

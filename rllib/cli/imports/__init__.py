"""Commands that take over programs and trained models of other libraries, a module each."""

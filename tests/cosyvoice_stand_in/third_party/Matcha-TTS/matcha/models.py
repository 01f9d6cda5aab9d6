"""Where upstream keeps a submodule."""

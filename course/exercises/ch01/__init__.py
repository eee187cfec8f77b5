"""The exercises of notebook 01, a file each; the registry finds them."""

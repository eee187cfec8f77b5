"""The exercises of notebook 00, a file each; the registry finds them."""

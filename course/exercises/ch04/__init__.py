"""The exercises of notebook 04, a file each; the registry finds them."""

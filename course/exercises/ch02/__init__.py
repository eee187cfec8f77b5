"""The exercises of notebook 02, a file each; the registry finds them."""

"""Small data between memory and banks: what is loaded, moved and written beside the products."""

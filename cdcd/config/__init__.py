"""The settings, the layers that they are read from, and the reference file that is made of them."""

"""Pictures and HTML pages about released models."""

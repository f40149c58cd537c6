"""Rows as data sets have them, built with templates of eight families; scripts/generate_quirks writes the page."""

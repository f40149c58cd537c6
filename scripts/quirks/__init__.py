"""Rows as data sets have them and families of chat templates, and what becomes of each with each, by builds."""

"""Tests; a package so that `tests.support` is this project's, whatever a dependency installs under the same name."""

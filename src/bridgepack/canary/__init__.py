"""The canary: packed training computes what unpacked training computes, shown with the host's own training step."""

"""A plugin of pytest for `run`: the first example that fails is enough, so that it is not made smaller for minutes."""

from hypothesis import Phase, settings

NAME = "unshrunk"
settings.register_profile(NAME, deadline=None, derandomize=True, phases=(Phase.explicit, Phase.generate))

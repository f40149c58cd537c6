"""What Megatron-Bridge is and does, as data: releases, model classes, adapters. Nothing of it is imported.

Facts come from reading and running a release; a module says which. Rooms above decide what follows from them.
"""

"""`bridgepack.prove`: the function of a proof, with the functions of its parts."""

from bridgepack.api import proofs


class Prove:
    """Proves a recipe or an artifact: `bridgepack.prove("packed")`, or one part, `bridgepack.prove.masks("packed")`."""

    __call__ = staticmethod(proofs.prove)
    sources = staticmethod(proofs.sources)
    masks = staticmethod(proofs.masks)
    served = staticmethod(proofs.served)
    training = staticmethod(proofs.training)


prove = Prove()

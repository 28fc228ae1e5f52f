"""The paper's analyses: gradients of samples, unlearning difficulty, embedding alignment, correlation."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)

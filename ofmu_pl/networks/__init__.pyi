from .classifier import Classifier as Classifier
from .language import CausalLM as CausalLM
from .loaded import LoadedLM as LoadedLM
from .vision import ResNet18 as ResNet18
from .vision import SmallCNN as SmallCNN

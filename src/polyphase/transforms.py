"""Image transforms for `polyphase.fuse`, by torchvision's names and with its arguments; torchvision is not needed."""

from polyphase.pipelines.sizes import (
    CenterCrop,
    Letterbox,
    Pad,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomVerticalFlip,
    Resize,
)
from polyphase.pipelines.vocabulary import (
    Compose,
    ConvertImageDtype,
    Normalize,
    PILToTensor,
    RandomApply,
    RandomChoice,
    RandomOrder,
    ToDtype,
    ToImage,
    ToPureTensor,
    ToTensor,
)
from polyphase.pipelines.warps import RandomAffine, RandomPerspective, RandomRotation

__all__ = [
    "CenterCrop",
    "Compose",
    "ConvertImageDtype",
    "Letterbox",
    "Normalize",
    "PILToTensor",
    "Pad",
    "RandomAffine",
    "RandomApply",
    "RandomChoice",
    "RandomCrop",
    "RandomHorizontalFlip",
    "RandomOrder",
    "RandomPerspective",
    "RandomResizedCrop",
    "RandomRotation",
    "RandomVerticalFlip",
    "Resize",
    "ToDtype",
    "ToImage",
    "ToPureTensor",
    "ToTensor",
]

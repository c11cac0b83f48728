"""`polyphase.fuse`: a chain of transforms as one callable, which can be pickled and makes one program per image."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import default_collate, get_worker_info

from polyphase import torch_private
from polyphase.calls.again import Latest
from polyphase.calls.plain import are_plain
from polyphase.errors import UnknownNameError, WrongArgumentError, WrongImageError, warn
from polyphase.pipelines import parts
from polyphase.pipelines.batches import (
    Sheet,
    are_alike,
    check_alike,
    check_out,
    empty,
    empty_batch,
    is_dense_out,
    launches_together,
    most_alike,
    run_into,
)
from polyphase.pipelines.picture import PIL, TENSOR, Picture, as_kind
from polyphase.pipelines.pillow import NewPicture, is_pil
from polyphase.pipelines.reading import (
    Step,
    is_a_transform,
    is_random,
    read,
    takes_images_alone,
)
from polyphase.pipelines.sources import Source, is_array
from polyphase.pipelines.templates import Sketch, Templates, kind_but_size
from polyphase.pipelines.vocabulary import Compose, Container
from polyphase.pipelines.walks import Image, Sample, Walk, as_picture, image_of, lone_image, only_picture, sample_of_v1
from polyphase.records.facts import Sizes
from polyphase.records.layout import BY_ROWS
from polyphase.sampling.text import to_text

_ON_ERROR = ("raise", "skip")
#: So many sizes are remembered, then all are forgotten: each keeps its tables.
_MOST_READY = 256
_EXAMPLE = torch.empty(1, dtype=torch.uint8).expand(3, 480, 640)


def fuse(transform: Any) -> Pipeline:
    """Make a pipeline of a transform of torchvision (v1 or v2) or of `polyphase.transforms`, of an `nn.Sequential`, or
    of a list of such. It gives the same pictures for the same seeds, by one kernel wherever it can.

    A transform that is not known, also a subclass of a known one, runs as itself, between kernels. Where there is
    nothing else, as in an image processor or a model, a warning says so.
    """
    if isinstance(transform, Pipeline):
        return transform
    made = Pipeline(transform)
    made.warn_if_nothing_is_known()
    return made


class _Known:
    """Makes pictures of images of one size and kind: by `fresh`, from an image's memory; or like `picture`, which is
    bound once a picture is asked for."""

    def __init__(self, kind: str, fresh: Callable[..., Tensor] | None = None, picture: Picture | None = None) -> None:
        self.kind, self.picture = kind, picture
        self._fresh, self._is_bound = fresh, fresh is not None

    def value(self, source: Source) -> Any:
        if not self._is_bound and self.picture is not None:
            ready, self._is_bound = self.picture.ready(), True
            self._fresh = None if ready is None else ready.run
        if self._fresh is not None:
            return as_kind(self._fresh(source.memory), self.kind)
        assert self.picture is not None, "one of both is there"
        return self.picture.again(source).value()


class Pipeline:
    """A pipeline, made by `fuse`. It keeps the transform that it was given, and can be pickled if that can."""

    def __init__(self, transform: Any) -> None:
        self.transform = transform
        self._steps = read(transform)
        self._takes_images_alone = takes_images_alone(transform)
        self._is_fixed = not is_random(self._steps)
        self._ready: dict[Any, _Known] = {}
        self._sheets: dict[Any, Sheet] = {}
        self._templates = Templates(self._steps)
        self._latest = Latest()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.transform,)

    def warn_if_nothing_is_known(self) -> None:
        if not is_a_transform(self._steps):
            warn(
                f"fuse of a {type(self.transform).__name__}, which has no transform that is known: each call runs it "
                "as itself, and nothing becomes a kernel. Give transforms of torchvision or of polyphase.transforms"
            )

    def __call__(self, *inputs: Any) -> Any:
        """Takes what the transform that it was made of takes: an image, or any sample that has one."""
        if len(inputs) != 1:
            return self.walk(inputs, unpacks=True).value()
        in_parts = self._parts(inputs[0])
        if in_parts is not None:
            return in_parts(inputs[0])
        made = self._latest.again(inputs[0], *_defaults())
        if made is not None:
            return made
        image = image_of(inputs[0])
        if image is None:
            return self.walk(inputs[0]).value()
        made = self._by_template(image)
        if made is not None:
            return made
        known = self._ready.get(_key_of(image)) if self._is_fixed else None
        if known is not None:
            return known.value(image.source)
        found = self._templates.of(image)
        known = self._remembered(image, found)
        return found.value() if known is None else known.value(image.source)

    def _parts(self, image: Any) -> Callable[[Any], Any] | None:
        """What makes an image part by part; None of what is none, and where all is done at once."""
        if isinstance(image, Tensor) or is_array(image):
            return self._parts_of_tensors
        return self._parts_of_pictures if is_pil(image) else None

    @functools.cached_property
    def _parts_of_tensors(self) -> Callable[[Any], Any] | None:
        return self._cut(of_pillow=False)

    @functools.cached_property
    def _parts_of_pictures(self) -> Callable[[Any], Any] | None:
        return self._cut(of_pillow=True)

    def _cut(self, *, of_pillow: bool) -> Callable[[Any], Any] | None:
        found = parts.cut((self.transform, self._steps), Pipeline, of_pillow=of_pillow)
        if found is None:
            return None
        first, rest = found
        return parts.one_by_one([first, Pipeline(rest)]) if rest else first

    def _by_template(self, image: Image) -> Any:
        """The picture of an image that a template is for, made in C++; None where there is none."""
        sized = self._templates.sized(image)
        if sized is None:
            return None
        calls, kind = sized
        _, shape, strides, _ = image.source.facts
        memory = image.source.memory
        made = calls.call(shape, strides, memory)
        if made is None:
            return None
        if isinstance(memory, Tensor) and image.kind == kind == TENSOR:
            self._latest.follow(calls.call, (memory,), _defaults(), any_size=True)
        if isinstance(made, NewPicture):
            return made.image()
        return image.original if made is memory and image.kind == kind else as_kind(made, kind)

    def walk(self, sample: Any, *, unpacks: bool = False) -> Walk:
        """Takes a sample through the steps: random parameters are drawn, and nothing is computed that can wait."""
        walk = Walk(sample, unpacks=unpacks)
        walk.take(self._steps)
        return walk

    def _remembered(self, image: Image, found: Sketch | Walk) -> _Known | None:
        """Keeps, where nothing is random, what an image was bound to, for the next image of its size and kind."""
        if not self._is_fixed:
            return None
        if isinstance(found, Sketch):
            return self._keep(image, _Known(found.kind, found.ready().run)) if found.is_cut else None
        picture = found.leaves[0]
        if not found.is_whole or not picture.is_for_others() or picture.kind == PIL:
            return None
        return self._keep(image, _Known(picture.kind, picture=picture))

    def _keep(self, image: Image, known: _Known) -> _Known:
        if len(self._ready) >= _MOST_READY:
            self._ready.clear()
        self._ready[_key_of(image)] = known
        return known

    def _picture(self, sample: Any) -> Picture | Sketch:
        """An image at the end of its way, not yet computed."""
        image = image_of(sample)
        if image is None:
            return only_picture(self.walk(sample))
        known = self._ready.get(_key_of(image)) if self._is_fixed else None
        if known is not None and known.picture is not None:
            return known.picture.again(image.source)
        found = self._templates.of(image)
        if isinstance(found, Sketch):
            return found
        self._remembered(image, found)
        return only_picture(found)

    def batch(
        self,
        images: Sequence[Any],
        out: Tensor | None = None,
        *,
        channels_last: bool = False,
        as_list: bool | None = False,
        on_error: str = "raise",
    ) -> Any:
        """Make one tensor (N, channels, height, width) of images of any sizes: in `out`, if given. Random parameters
        are drawn image by image, in their order, before anything is computed; then threads take one image after the
        other.

        `as_list=True` makes a list of tensors, which may be of several sizes; `as_list=None` makes one only where the
        results differ in size, dtype or device. `on_error="skip"` leaves out an image that cannot be done, or that
        becomes another shape, dtype or device than most. The result is then (tensor, mask): a mask of as many elements
        as there are images says which of them the tensor has.
        """
        if on_error == "raise" and as_list is False:
            together = self._together(images, out, channels_last)
            if together is not None:
                return together
        pictures, numbers = self._pictures(images, on_error)
        if as_list is None:
            as_list = out is None and not are_alike(pictures)
        if on_error == "skip" and not as_list:
            pictures, numbers = most_alike(pictures, numbers)
        if as_list:
            if out is not None:
                raise WrongArgumentError("out with as_list=True; a list has tensors of its own: leave one of both out")
            made: Any = _recorded(pictures)
            if made is None:
                made = [empty_batch(one, 1, channels_last=channels_last)[0] for one in pictures]
                run_into(pictures, made)
        else:
            made = self._one_tensor(pictures, numbers, out, channels_last, len(images))
        if on_error == "raise":
            return made
        return made, torch.zeros(len(images), dtype=torch.bool).index_fill_(
            0, torch.tensor(numbers, dtype=torch.int64), True
        )

    def _together(self, images: Any, out: Tensor | None, channels_last: bool) -> Tensor | None:
        """One tensor of images of one kind that one program does each, by what is remembered of their sizes; None where
        that is not enough."""
        if type(images) not in (list, tuple) or not images:
            return None
        first = images[0]
        if not launches_together(first):
            return self._together_by_templates(tuple(images), out, channels_last)
        if not self._is_fixed or not are_plain(images):
            return None
        name = (first.dtype, first.ndim, first.device, channels_last, None if out is None else out.stride())
        sheet = self._sheets.get(name)
        if sheet is None:
            self._sheets[name] = sheet = Sheet(self._picture, self._written_for, channels_last)
        return sheet.run(images, out)

    def _written_for(self, tensor: Tensor) -> bytes:
        image = image_of(tensor)
        return b"" if image is None else self._templates.written_for(image)

    def _together_by_templates(self, images: tuple[Any, ...], out: Tensor | None, channels_last: bool) -> Tensor | None:
        """Makes pictures together by one call into C++, where templates are for the images."""
        try:
            first = image_of(images[0])
            sized = None if first is None else self._templates.sized(first)
            if first is None or sized is None:
                return None
            is_read_there = are_plain(images) if type(images[0]) is Tensor else first.source.facts.strides[1] == BY_ROWS
            read = images if is_read_there else _read_alike(first, images)
        except Exception:  # the longer way says which image it is
            return None
        if read is None:
            return None
        device = first.source.facts.device

        def out_of(sizes: Sizes, dtype: torch.dtype) -> Tensor | None:
            shape = (len(images), *sizes)
            if out is None:
                return empty(shape, dtype, device, channels_last=channels_last)
            return out if is_dense_out(out, shape, dtype, device) else None

        return sized[0].many(read, out_of)

    def _one_tensor(
        self, pictures: list[Picture | Sketch], numbers: list[int], out: Tensor | None, channels_last: bool, count: int
    ) -> Tensor:
        if not pictures:
            raise WrongImageError(f"none of {count} images can be done; on_error='raise' says why")
        check_alike(pictures, numbers)
        if out is not None:
            check_out(out, pictures[0], count)
            out = out[: len(pictures)]
        recorded = _recorded(pictures)
        if recorded is not None:
            made = torch.stack(recorded)
            made = made.contiguous(memory_format=torch.channels_last) if channels_last else made
            return made if out is None else out.copy_(made)
        if out is None:
            out = empty_batch(pictures[0], len(pictures), channels_last=channels_last)
        run_into(pictures, list(out.unbind()))
        return out

    def _pictures(self, images: Sequence[Any], on_error: str) -> tuple[list[Picture | Sketch], list[int]]:
        """Pictures of the images that can be done, and the numbers of those images."""
        if on_error not in _ON_ERROR:
            raise UnknownNameError("on_error", on_error, _ON_ERROR)
        if isinstance(images, (Tensor, str, dict)) or not hasattr(images, "__len__") or not len(images):
            seen = "no images" if hasattr(images, "__len__") and not len(images) else f"a {type(images).__name__}"
            raise WrongArgumentError(f"a batch of {seen}; give a list of images, one at least")
        pictures, numbers = list[Picture | Sketch](), list[int]()
        for number, image in enumerate(images):
            try:
                pictures.append(self._picture(image))
                numbers.append(number)
            except Exception as error:
                if on_error == "raise":
                    raise WrongImageError(f"image {number} of {len(images)}: {error}") from error
        return pictures, numbers

    def collate(self, samples: Sequence[Any]) -> Any:
        """The `collate_fn` of a DataLoader whose dataset has images that are not transformed yet. It takes samples of
        an image and other things, as (image, label), and gives one sample of batches. Images are transformed and become
        one tensor, in shared memory in a worker, else pinned if there is a GPU; `default_collate` does everything
        else."""
        walks = list[Walk | Sample]()
        for number, sample in enumerate(samples):
            try:
                walks.append(self._sample(sample))
            except Exception as error:
                raise WrongImageError(f"sample {number} of {len(samples)}: {error}") from error
        if not walks:
            raise WrongArgumentError("a batch of no samples; give one at least")
        forms = [None if walk.tree is None else walk.tree.form for walk in walks]
        if any(form != forms[0] for form in forms):
            raise WrongImageError(f"samples of several forms: {forms[0]} and others; all of a batch are alike")
        columns = [self._column(column) for column in zip(*[walk.leaves for walk in walks], strict=True)]
        first = walks[0].tree
        return columns[0] if first is None else first.with_leaves(columns)

    def _sample(self, sample: Any) -> Walk | Sample:
        """A sample at the end of its way, its image not yet computed: by a sketch, if it has one image only."""
        if self._takes_images_alone:
            return self._sample_of_v1(sample)
        found = lone_image(sample) if self._templates.takes_samples else None
        if found is None:
            return self.walk(sample)
        made, place, image = found
        made.leaves[place] = _leaf_of(self._templates.of(image))
        return made

    def _sample_of_v1(self, sample: Any) -> Walk | Sample:
        """`_sample` where transforms are given the image alone."""
        found = sample_of_v1(sample)
        if found is None:
            return self.walk(sample)
        made, place = found
        image = image_of(made.leaves[place])
        made.leaves[place] = _leaf_of(self.walk(made.leaves[place]) if image is None else self._templates.of(image))
        return made

    def _column(self, leaves: tuple[Any, ...]) -> Any:
        leaves = tuple(as_picture(leaf) if is_pil(leaf) else leaf for leaf in leaves)
        if not all(isinstance(leaf, (Picture, Sketch)) for leaf in leaves):
            return default_collate([one.value() if isinstance(one, (Picture, Sketch)) else one for one in leaves])
        check_alike(leaves, range(len(leaves)))
        recorded = _recorded(leaves)
        if recorded is not None:
            return torch.stack(recorded)
        out = empty_batch(leaves[0], len(leaves), channels_last=False, make=_for_a_loader)
        run_into(leaves, list(out.unbind()))
        return out

    def programs(self, image: Any) -> list[str]:
        """The texts of the programs for an image, with the random parameters that the generators would give now; the
        generators stay as they are. Transforms that run as themselves are taken to leave the image as it is."""
        walk = Walk(image, runs=False)
        with _generators_kept():
            walk.take(self._steps)
        changed = [one for one in walk.pictures() if not (one.is_untouched and one.is_view)]
        return [to_text(stage.program) for one in changed for stage in one.stages()]

    def __repr__(self) -> str:
        lines = [f"  {line}" for line in _listed(self._steps)]
        try:
            programs = self.programs(_EXAMPLE)
        except Exception as error:
            programs = [f"none: {error}"]
        shown = [f"  {text}" for text in programs or ["none: nothing becomes a kernel"]]
        return "\n".join(["Pipeline(", *lines, "  # of a uint8 image of (3, 480, 640), for example:", *shown, ")"])


def _for_a_loader(count: int, *, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Memory that other processes, or a GPU, can read without another copy."""
    if device.type == "cpu" and get_worker_info() is not None:
        return torch_private.new_shared(count, dtype)
    pins = device.type == "cpu" and torch.cuda.is_available()
    return torch.empty(count, dtype=dtype, device=device, pin_memory=pins)


def _read_alike(first: Image, images: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Sizes, strides and memory of each, where all are of the kind of the first; else None."""
    kind, read = kind_but_size(first), list[Any]()
    for one in images:
        image = image_of(one)
        if image is None or kind_but_size(image) != kind:
            return None
        _, shape, strides, _ = image.source.facts
        read.append((shape, strides, image.source.memory))
    return tuple(read)


def _recorded(pictures: Sequence[Picture | Sketch]) -> list[Tensor] | None:
    """The pictures made by torch operations, one by one, if autograd is to record any of them; else None."""
    return [one.run() for one in pictures] if any(one.plain for one in pictures) else None


def _leaf_of(done: Sketch | Walk) -> Any:
    """What an image within a sample has become."""
    if isinstance(done, Sketch):
        return done
    return done.leaves[0] if done.tree is None else done.value()


def _defaults() -> tuple[Any, ...]:
    """What a call that is like another depends on besides its image: by which torch draws, and makes tensors."""
    return torch.get_default_dtype(), torch_private.default_device()


def _key_of(image: Image) -> tuple[Any, ...]:
    """What an image's programs depend on."""
    kind, source, _, plain = image
    return kind, source.facts, source.flipped, plain, torch.get_default_dtype()


def _listed(step: Step | Container) -> Iterator[str]:
    if isinstance(step, Step):
        first, *more = repr(step).splitlines() or [""]
        yield repr(step) if step.ours is not None else f"{first}{' ...' if more else ''}  # as itself"
        return
    if type(step) is not Compose:
        yield f"{type(step).__name__}:"
    for one in step.transforms:
        for line in _listed(one):
            yield line if type(step) is Compose else f"  {line}"


@contextmanager
def _generators_kept() -> Iterator[None]:
    state = random.getstate()
    with torch.random.fork_rng(devices=[]):
        yield
    random.setstate(state)

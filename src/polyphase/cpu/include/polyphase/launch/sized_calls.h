// Whole calls for images of any size, where templates say what is done: what is drawn for an image, and one image to a new
// tensor, or many into one.
#pragma once

#include "polyphase/launch/drawing.h"
#include "polyphase/launch/running.h"
#include "polyphase/launch/sized_request.h"
#include "polyphase/launch/sizes.h"

namespace polyphase {

// What a picture is that needs no kernel: a part of the image's own memory, or the image.
enum class Becomes : int64_t { kTensor, kView, kItself };

// A program that templates share: a request for images of many sizes, what its calls read besides their image (a tuple),
// the dtype of its results, and what makes of a place what has the memory of one.
struct SizedPattern {
  SizedRequest request;
  Reference vectors, dtype, make;
  int64_t element_bytes;
  Becomes becomes;
};

// Pillow's pictures of one mode, as `told_of_pictures` of `pipelines/pillow.py` has them: their class, the mode, channels, the
// step from pixel to pixel, and where C's picture has the address of its list of rows, in bytes.
enum { kPictureClass, kMode, kPictureChannels, kPictureStep, kPlaceOfRows };

// An image as it is given: a tensor; a picture of Pillow's; or a tuple of sizes, strides and what has its address. alike: it is
// known to lie in memory as all of a kind.
struct GivenImage {
  Extent extent;
  PyObject* memory = nullptr;
  Reference picture{nullptr};  // which rows belong to, that begin as the list at `rows` says
  void* rows = nullptr;
  bool alike = false;

  // False where it is none of these, there are too many dimensions, or an error is set. pictures: None where there are none.
  bool read(PyObject* given, PyObject* pictures) {
    alike = type_of(given) == &PyTuple_Type;
    memory = alike ? PyTuple_GetItem(given, 2) : given;
    if (alike) return read_numbers(PyTuple_GetItem(given, 0), PyTuple_GetItem(given, 1));
    if (pictures == &_Py_NoneStruct) return extent.read(given);
    if (read_picture(given, pictures)) return true;
    PyErr_Clear();  // the longer way says what it is
    return false;
  }

  bool read_numbers(PyObject* sizes, PyObject* strides) {
    if (PyTuple_Size(sizes) != 3 || PyTuple_Size(strides) != 3) throw BadCall{"three sizes and strides"};
    extent.rank = 3;
    for (int d = 0; d < 3; ++d) {
      extent.size[d] = integer(PyTuple_GetItem(sizes, d));
      extent.stride[d] = integer(PyTuple_GetItem(strides, d));
    }
    return true;
  }

  void add_to(Addresses& addresses) const {
    if (rows == nullptr) return add_address(memory, addresses);
    addresses.data[addresses.count++] = rows;
  }

 private:
  bool read_picture(PyObject* given, PyObject* pictures) {
    static PyObject* const names[] = {PyUnicode_InternFromString("getim"), PyUnicode_InternFromString("mode"),
                                      PyUnicode_InternFromString("size")};
    if (PyObject_IsInstance(given, PyTuple_GetItem(pictures, kPictureClass)) != 1) return false;
    picture = Reference(PyObject_VectorcallMethod(names[0], &given, 1, nullptr));  // of a file, it is read now
    const Reference mode(PyObject_GetAttr(given, names[1])), size(PyObject_GetAttr(given, names[2]));
    if (picture.get() == nullptr || mode.get() == nullptr || size.get() == nullptr) return false;
    if (PyObject_RichCompareBool(mode.get(), PyTuple_GetItem(pictures, kMode), Py_EQ) != 1 || PyTuple_Size(size.get()) != 2) {
      return false;
    }
    const auto* const found = static_cast<const uint8_t*>(PyCapsule_GetPointer(picture.get(), "Pillow Imaging"));
    if (found == nullptr) return false;
    std::memcpy(&rows, found + integer(PyTuple_GetItem(pictures, kPlaceOfRows)), sizeof(rows));
    alike = true;
    extent.rank = 3;
    extent.size[0] = integer(PyTuple_GetItem(pictures, kPictureChannels));
    extent.size[1] = integer(PyTuple_GetItem(size.get(), 1));
    extent.size[2] = integer(PyTuple_GetItem(size.get(), 0));
    extent.stride[0] = 1;
    extent.stride[1] = Request::kByRows;
    extent.stride[2] = integer(PyTuple_GetItem(pictures, kPictureStep));
    return rows != nullptr && extent.size[1] >= 2 && extent.size[2] >= 2;
  }
};

// What is bound for images of one size and steps, where its result goes, and what it reads besides.
struct SizedBound {
  Bound bound;
  Reference place{nullptr}, vectors{nullptr};
  int64_t owners = 1;
};

inline void add_owner(SizedBound* kept) { ++kept->owners; }
inline void remove_owner(SizedBound* kept) {
  if (kept != nullptr && --kept->owners == 0) delete kept;
}

class OwnedBound {
 public:
  explicit OwnedBound(SizedBound* kept = nullptr) : kept_(kept) {}
  ~OwnedBound() { remove_owner(kept_); }
  OwnedBound(const OwnedBound&) = delete;
  OwnedBound& operator=(OwnedBound&& other) {
    swap(kept_, other.kept_);
    return *this;
  }

  SizedBound* get() const { return kept_; }
  SizedBound* operator->() const { return kept_; }

 private:
  SizedBound* kept_;
};

// What a request is found by: where its tensors lie, and its steps.
inline Key key_of(const Extent* tensors, int64_t count, const Followed& followed) {
  Key key(tensors, count);
  key.add(followed.program);
  for (int axis = 0; axis < 2; ++axis) {
    for (const Step* step = followed.step(axis); step < followed.step(axis) + followed.steps(axis); ++step) {
      key.add(step->a);
      key.add(step->b);
    }
  }
  return key;
}

// One of many images, and where its result goes. kept: what is kept of its size and steps; where there is nothing, `request`
// is bound by the thread that runs it. failed: it cannot be.
struct SizedItem {
  GivenImage given;
  Addresses addresses;
  OwnedBound kept;
  Followed followed;
  const SizedPattern* pattern = nullptr;
  Buffer<uint8_t> request;
  bool is_new = false, failed = false;

  Request& filled() { return *reinterpret_cast<Request*>(request.data()); }

  void run(int64_t threads) {
    try {
      if (is_new) {
        kept = OwnedBound(new SizedBound);
        bind(request.data(), request.size(), kept->bound);
      }
      ready(kept->bound, addresses).run(threads);
    } catch (const BadCall&) {
      failed = true;
    } catch (const TooManyDimensions&) {
      failed = true;
    }
  }
};

// Images of one kind, and how they are drawn for. The GIL is held wherever it is looked at.
class SizedCalls {
 public:
  // generator: None where nothing is drawn. unchanged: as of `are_unchanged`. pictures: what images are, None of tensors and
  // what is given as numbers.
  SizedCalls(PyObject* generator, Drawing drawing, PyObject* unchanged, PyObject* pictures)
      : generator_(owned(generator)),
        unchanged_(owned(unchanged)),
        pictures_(owned(pictures)),
        drawing_(drawing) {}
  SizedCalls(const SizedCalls&) = delete;
  SizedCalls& operator=(const SizedCalls&) = delete;
  ~SizedCalls() {
    for (const SizedPattern* one : patterns_) delete one;
  }

  bool learn(const Data& written) { return templates_.learn(written.data, written.size); }

  // From now on images of a program are this pattern's, whose request was made with numbers drawn. False where the request
  // does not follow from its own size.
  bool teach(int64_t program, SizedPattern&& taught, const Data& drawn) {
    const Drawn numbers(reinterpret_cast<const double*>(drawn.data), drawn.size / static_cast<ptrdiff_t>(sizeof(double)));
    Followed followed;
    if (!templates_.follow(taught.request.made().in_size + 1, numbers, &followed)) return false;
    if (program < 0 || followed.program != program || !taught.request.holds(followed)) return false;
    if (program >= patterns_.size()) patterns_.resize(program + 1);
    if (patterns_[program] == nullptr) patterns_[program] = new SizedPattern(move(taught));  // for good: a call may have it
    return true;
  }

  // What an image of a size goes through: the number of the program, the size of the result, and the numbers of the steps of
  // rows and of columns; -1 alone where such images are not for templates. None where there is no template. Drawn is nothing
  // but for what is gone through.
  PyObject* follow(int64_t height, int64_t width) {
    const int64_t size[] = {height, width};
    if (!are_unchanged(unchanged_.get())) return none();
    const OwnState state(generator_.get());
    Followed followed;
    if (!follow(state, size, &followed)) return none();
    if (followed.program < 0) return tuple_of({PyLong_FromLongLong(-1)});
    state.write_back();
    return tuple_of({PyLong_FromLongLong(followed.program), PyLong_FromLongLong(followed.size(0)),
                     PyLong_FromLongLong(followed.size(1)), numbers_of(followed, 0), numbers_of(followed, 1)});
  }

  // What the pattern makes, or what is as good; None, and nothing drawn, where that is not known of the image. memory: the image, or
  // what else has its address. alike: it is known to lie in memory as all of this kind.
  PyObject* call(const Extent& image, PyObject* memory, bool alike) {
    if (image.rank != 3 || !are_unchanged(unchanged_.get())) return none();
    const OwnState state(generator_.get());
    Followed followed;
    if (!follow(state, image.size + 1, &followed)) return none();
    const SizedPattern* const pattern = pattern_of(followed, image, alike);
    if (pattern == nullptr) return none();
    state.write_back();
    if (pattern->becomes != Becomes::kTensor) return part_of(memory, followed);
    const OwnedBound kept(bound_or_taken_back(image, followed, *pattern, state));
    if (kept.get() == nullptr) return none();
    PyObject* const vectors = kept->vectors.get();
    PyObject* tensors[1 + kMaxOperands] = {memory};
    const ptrdiff_t count = PyTuple_Size(vectors);
    for (ptrdiff_t v = 0; v < count; ++v) tensors[1 + v] = PyTuple_GetItem(vectors, v);
    return run_into_new(kept->bound, pattern->make.get(), kept->place.get(), tensors, 1 + count);
  }

  // Of a tuple of images a tensor with all results, which `out_of` makes of the sizes and the dtype of the first. None, and
  // nothing drawn, where one of them is not for this, or becomes another size, or `out_of` makes none.
  PyObject* many(PyObject* images, PyObject* out_of) {
    const ptrdiff_t count = PyTuple_Size(images);
    if (count < 1) throw BadCall{"a tuple of images"};
    Items items(count);
    for (ptrdiff_t i = 0; i < count; ++i) {
      if (!items[i].given.read(PyTuple_GetItem(images, i), pictures_.get())) return PyErr_Occurred() == nullptr ? none() : throw PythonError();
    }
    if (!are_unchanged(unchanged_.get())) return none();
    const OwnState state(generator_.get());
    for (ptrdiff_t i = 0; i < count; ++i) {
      if (!prepare(items[i], state) || !becomes_like(items[0], items[i])) return none();
    }
    state.write_back();
    Reference made(nullptr);
    try {
      made = Reference(run_into_one(items, out_of));
    } catch (...) {
      state.take_back();
      throw;
    }
    if (made.get() == nullptr) state.take_back();
    return made.get() == nullptr ? none() : made.release();
  }

 private:
  class Items {
   public:
    explicit Items(int64_t count) : items_(new SizedItem[count]), count_(count) {}
    ~Items() { delete[] items_; }
    Items(const Items&) = delete;
    Items& operator=(const Items&) = delete;

    SizedItem& operator[](int64_t i) { return items_[i]; }
    int64_t count() const { return count_; }

   private:
    SizedItem* const items_;
    const int64_t count_;
  };

  bool follow(const OwnState& state, const int64_t* size, Followed* followed) const {
    return state.can_draw() && templates_.follow(size, Drawn(state.get(), drawing_), followed);
  }

  // Null where there is none, or the image is not as those it is for.
  const SizedPattern* pattern_of(const Followed& followed, const Extent& image, bool alike) const {
    if (followed.program < 0 || followed.program >= patterns_.size()) return nullptr;
    const SizedPattern* const found = patterns_[followed.program];
    return found == nullptr || !(alike || found->request.is_like(image)) ? nullptr : found;
  }

  // Lists of numbers, as `records/recipes.py` has them.
  static PyObject* numbers_of(const Followed& followed, int axis) {
    Reference made(PyList_New(0));
    for (const Step* step = followed.step(axis); step < followed.step(axis) + followed.steps(axis); ++step) {
      for (const int64_t one : {step->kind, step->a, step->b, step->c, step->d}) append(made, PyLong_FromLongLong(one));
      for (const double one : {step->scale, step->begin, step->end}) append(made, PyFloat_FromDouble(one));
    }
    return made.release();
  }
  static void append(const Reference& list, PyObject* made) {
    const Reference one(made);
    if (one.get() == nullptr || PyList_Append(list.get(), one.get()) != 0) throw PythonError();
  }

  // A view of a tensor's rows and columns, or the tensor where these are all; of one or no slice along each axis.
  static PyObject* part_of(PyObject* tensor, const Followed& followed) {
    static PyObject* const narrow = PyUnicode_InternFromString("narrow");
    Reference part(owned(tensor));
    for (int axis = 0; axis < 2; ++axis) {
      if (followed.steps(axis) == 0) continue;
      const Step& slice = *followed.step(axis);
      const Reference dim(PyLong_FromLongLong(1 + axis)), first(PyLong_FromLongLong(slice.a));
      const Reference length(PyLong_FromLongLong(slice.b - slice.a));
      PyObject* const args[] = {part.get(), dim.get(), first.get(), length.get()};
      part = Reference(PyObject_VectorcallMethod(narrow, args, 4, nullptr));
      if (part.get() == nullptr) throw PythonError();
    }
    return part.release();
  }

  // `bound_to`; where nothing can be bound, the generator is as before.
  SizedBound* bound_or_taken_back(const Extent& image, const Followed& followed, const SizedPattern& pattern, const OwnState& state) {
    SizedBound* made = nullptr;
    try {
      made = bound_to(image, followed, pattern);
    } catch (const TooManyDimensions&) {
    } catch (...) {
      state.take_back();
      throw;
    }
    if (made == nullptr) state.take_back();
    return made;
  }

  // Which the caller owns; null where no kernel takes it. A new one is bound in the memory of the oldest, unless that still
  // runs.
  SizedBound* bound_to(const Extent& image, const Followed& followed, const SizedPattern& pattern) {
    const Key key = key_of(&image, 1, followed);
    const uint64_t hash = key.hash();
    SizedBound* const found = sizes_.find(key, hash);
    if (found != nullptr) return found;
    Buffer<uint8_t> request(move(request_));  // calls may come here again, while Python makes a tuple
    if (!pattern.request.fill(image.size, image.stride, followed, &request)) return nullptr;
    OwnedBound made(sizes_.give_up());
    if (made.get() == nullptr || made->owners > 1) {
      made = OwnedBound(new SizedBound);
    } else {
      made->bound.~Bound();
      new (&made->bound) Bound;
    }
    bind(request.data(), request.size(), made->bound);
    complete(*made.get(), request, pattern);
    sizes_.keep(key, hash, made.get());
    request_ = move(request);
    add_owner(made.get());
    return made.get();
  }

  void complete(SizedBound& bound, const Buffer<uint8_t>& request, const SizedPattern& pattern) {
    bound.place = Reference(place_of(*reinterpret_cast<const Request*>(request.data()), pattern.dtype.get()));
    bound.vectors = Reference(owned(pattern.vectors.get()));
  }

  // Where a result goes: most are of one size.
  PyObject* place_of(const Request& filled, PyObject* dtype) {
    const int64_t lies[] = {filled.out_size[0],   filled.out_size[1],   filled.out_size[2],
                            filled.out_stride[0], filled.out_stride[1], filled.out_stride[2]};
    const bool is_latest = place_.get() != nullptr && std::memcmp(lies, lies_, sizeof(lies)) == 0;
    if (!is_latest || PyTuple_GetItem(place_.get(), 2) != dtype) {
      place_ = Reference(tuple_of({numbers(lies, 3), numbers(lies + 3, 3), owned(dtype)}));
      std::memcpy(lies_, lies, sizeof(lies));
    }
    return owned(place_.get());
  }

  // Draws for an item, and fills its request; false where that cannot be.
  bool prepare(SizedItem& item, const OwnState& state) const {
    const Extent& image = item.given.extent;
    if (image.rank != 3 || !follow(state, image.size + 1, &item.followed)) return false;
    item.pattern = pattern_of(item.followed, image, item.given.alike);
    return item.pattern != nullptr && item.pattern->request.fill(image.size, image.stride, item.followed, &item.request);
  }

  static bool becomes_like(SizedItem& first, SizedItem& item) {
    const int64_t *size = item.filled().out_size, *wanted = first.filled().out_size;
    return std::memcmp(size, wanted, 3 * sizeof(int64_t)) == 0 && item.pattern->dtype.get() == first.pattern->dtype.get();
  }

  // A tensor with the results of all, which the caller owns; null where it has to be made otherwise.
  PyObject* run_into_one(Items& items, PyObject* out_of) {
    const Reference sizes(numbers(items[0].filled().out_size, 3));
    PyObject* const args[] = {sizes.get(), items[0].pattern->dtype.get()};
    Reference out(PyObject_VectorcallDict(out_of, args, 2, nullptr));
    if (out.get() == nullptr) throw PythonError();
    Extent target;
    if (out.get() == &_Py_NoneStruct || !target.read(out.get()) || target.rank != 4 || target.size[0] != items.count()) {
      return nullptr;
    }
    Addresses base;
    add_address(out.get(), base);
    const Extent each = target.within();
    for (int64_t i = 0; i < items.count(); ++i) {
      const int64_t from_first = i * target.stride[0] * items[i].pattern->element_bytes;
      items[i].addresses.data[items[i].addresses.count++] = static_cast<uint8_t*>(base.data[0]) + from_first;
      if (!aim(items[i], each)) return nullptr;
    }
    run(items);
    for (int64_t i = 0; i < items.count(); ++i) {
      if (items[i].failed) return nullptr;
      keep(items[i], each);
    }
    return out.release();
  }

  // At where its result goes; false where that is of another size.
  bool aim(SizedItem& item, const Extent& target) {
    if (std::memcmp(item.filled().out_size, target.size, 3 * sizeof(int64_t)) != 0) return false;
    std::memcpy(item.filled().out_stride, target.stride, 3 * sizeof(int64_t));
    const Extent both[] = {item.given.extent, target};
    const Key key = key_of(both, 2, item.followed);
    item.kept = OwnedBound(sizes_.find(key, key.hash()));
    item.is_new = item.kept.get() == nullptr;
    item.given.add_to(item.addresses);
    PyObject* const vectors = item.pattern->vectors.get();
    for (ptrdiff_t v = 0; v < PyTuple_Size(vectors); ++v) add_address(PyTuple_GetItem(vectors, v), item.addresses);
    return true;
  }

  static void run(Items& items) {
    const int64_t threads = torch_threads(), count = items.count();
    without_gil(count, [&] {
      if (count >= threads) return by_queue(count, threads, [&](int64_t i) { items[i].run(1); });
      for (int64_t i = 0; i < count; ++i) items[i].run(threads);
    });
  }

  // What was bound anew.
  void keep(SizedItem& item, const Extent& target) {
    if (!item.is_new) return;
    const Extent both[] = {item.given.extent, target};
    const Key key = key_of(both, 2, item.followed);
    complete(*item.kept.get(), item.request, *item.pattern);
    sizes_.keep(key, key.hash(), item.kept.get());
  }

  const Reference generator_, unchanged_, pictures_;
  const Drawing drawing_;
  Templates templates_;
  Buffer<SizedPattern*> patterns_;  // by programs' numbers
  Reference place_{nullptr};        // of the latest result, which lies so
  int64_t lies_[6];
  Buffer<uint8_t> request_;  // its memory, to be filled again
  Sizes<SizedBound> sizes_;
};

}  // namespace polyphase

// Whole calls for images of any size, where steps follow from it: one image to a new tensor, or many into one.
#pragma once

#include "polyphase/launch/running.h"
#include "polyphase/launch/sizes.h"
#include "polyphase/launch/ways.h"

namespace polyphase {

// A request for images of many sizes, and what its calls read besides their image: a tuple.
struct SizedPattern {
  SizedRequest request;
  Reference vectors;
  SizedPattern* next;
};

// An image as it is given: a tensor; or a tuple of sizes, strides and what has its address, of one that is known to lie in
// memory as all of a kind.
struct GivenImage {
  Extent extent;
  PyObject* memory = nullptr;
  bool alike = false;

  // False where there are too many dimensions, or an error is set.
  bool read(PyObject* given) {
    alike = type_of(given) == &PyTuple_Type;
    memory = alike ? PyTuple_GetItem(given, 2) : given;
    return alike ? read(PyTuple_GetItem(given, 0), PyTuple_GetItem(given, 1)) : extent.read(given);
  }

  bool read(PyObject* sizes, PyObject* strides) {
    if (PyTuple_Size(sizes) != 3 || PyTuple_Size(strides) != 3) throw BadCall{"three sizes and strides"};
    extent.rank = 3;
    for (int d = 0; d < 3; ++d) {
      extent.size[d] = integer(PyTuple_GetItem(sizes, d));
      extent.stride[d] = integer(PyTuple_GetItem(strides, d));
    }
    return true;
  }
};

// What is bound for images of one size, where its result goes, and what it reads besides.
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

// One of many images, and where its result goes. kept: what is kept of its size; where there is nothing, `request` is bound
// by the thread that runs it. failed: it cannot be.
struct SizedItem {
  GivenImage given;
  Addresses addresses;
  OwnedBound kept;
  PyObject* vectors = nullptr;
  Buffer<uint8_t> request;
  bool failed = false;

  bool is_new() const { return request.size() > 0; }

  void run(int64_t threads) {
    try {
      if (is_new()) {
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

// Images of one kind: a few patterns, of which one is for a size. The GIL is held wherever it is looked at.
class SizedCalls {
 public:
  // make: of a place, a new tensor of this dtype.
  SizedCalls(PyObject* make, PyObject* dtype, int64_t element_bytes)
      : make_(owned(make)), dtype_(owned(dtype)), element_bytes_(element_bytes) {}
  SizedCalls(const SizedCalls&) = delete;
  SizedCalls& operator=(const SizedCalls&) = delete;
  ~SizedCalls() {
    while (patterns_ != nullptr) {
      const SizedPattern* const first = patterns_;
      patterns_ = first->next;
      delete first;
    }
  }

  // False where the request does not follow from its own size.
  bool learn(SizedRequest&& request, PyObject* vectors) {
    auto* const pattern = new SizedPattern{move(request), Reference(owned(vectors)), patterns_};
    if (!pattern->request.holds()) {
      delete pattern;
      return false;
    }
    patterns_ = pattern;
    return true;
  }

  // A new tensor; None where no pattern is for the image. memory: the image, or what else has its address. alike: it is
  // known to lie in memory as all of this kind.
  PyObject* call(const Extent& image, PyObject* memory, bool alike) {
    const OwnedBound kept(bound_to(image, alike));
    if (kept.get() == nullptr) return none();
    PyObject* const vectors = kept->vectors.get();
    PyObject* tensors[1 + kMaxOperands] = {memory};
    const ptrdiff_t count = PyTuple_Size(vectors);
    for (ptrdiff_t v = 0; v < count; ++v) tensors[1 + v] = PyTuple_GetItem(vectors, v);
    return run_into_new(kept->bound, make_.get(), kept->place.get(), tensors, 1 + count);
  }

  // Of a tuple of images a tensor with all results, which `out_of` makes of the sizes of the first. None where one of them
  // is not for this, or becomes another size, or `out_of` makes none.
  PyObject* many(PyObject* images, PyObject* out_of) {
    const ptrdiff_t count = PyTuple_Size(images);
    if (count < 1) throw BadCall{"a tuple of images"};
    Items items(count);
    for (ptrdiff_t i = 0; i < count; ++i) {
      if (!items[i].given.read(PyTuple_GetItem(images, i))) return PyErr_Occurred() == nullptr ? none() : throw PythonError();
    }
    Buffer<uint8_t> request;
    if (fill(items[0].given.extent, items[0].given.alike, nullptr, &request) == nullptr) return none();
    const Reference sizes(numbers(reinterpret_cast<const Request*>(request.data())->out_size, 3));
    PyObject* const args[] = {sizes.get()};
    Reference out(PyObject_VectorcallDict(out_of, args, 1, nullptr));
    if (out.get() == nullptr) throw PythonError();
    Extent target;
    if (out.get() == &_Py_NoneStruct || !target.read(out.get()) || target.rank != 4 || target.size[0] != count) return none();
    Addresses base;
    add_address(out.get(), base);
    const int64_t step = target.stride[0] * element_bytes_;
    const Extent each = target.within();
    for (ptrdiff_t i = 0; i < count; ++i) {
      items[i].addresses.data[items[i].addresses.count++] = static_cast<uint8_t*>(base.data[0]) + i * step;
      if (!prepare(items[i], each)) return none();
    }
    run(items);
    for (ptrdiff_t i = 0; i < count; ++i) {
      if (items[i].failed) return none();
      keep(items[i], each);
    }
    return out.release();
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

  // The pattern whose request for an image this is, which is the first from then on: most images are of one. Null where
  // there is none. target: where the result goes, null where that is a new tensor.
  const SizedPattern* fill(const Extent& image, bool alike, const Extent* target, Buffer<uint8_t>* request) {
    if (image.rank != 3) return nullptr;
    for (SizedPattern** link = &patterns_; *link != nullptr; link = &(*link)->next) {
      SizedPattern* const one = *link;
      if (!alike && !one->request.is_like(image.size, image.stride)) continue;
      if (!one->request.fill(image.size, image.stride, target, request)) continue;
      *link = one->next;
      one->next = patterns_;
      return patterns_ = one;
    }
    return nullptr;
  }

  // Which the caller owns; null where there is none. A new one is bound in the memory of the oldest, unless that still runs.
  SizedBound* bound_to(const Extent& image, bool alike) {
    const Key key(&image, 1);
    const uint64_t hash = key.hash();
    SizedBound* const found = sizes_.find(key, hash);
    if (found != nullptr) return found;
    Buffer<uint8_t> request(move(request_));  // calls may come here again, while Python makes a tuple
    const SizedPattern* const pattern = fill(image, alike, nullptr, &request);
    if (pattern == nullptr) return nullptr;
    OwnedBound made(sizes_.give_up());
    if (made.get() == nullptr || made->owners > 1) {
      made = OwnedBound(new SizedBound);
    } else {
      made->bound.~Bound();
      new (&made->bound) Bound;
    }
    bind(request.data(), request.size(), made->bound);
    complete(*made.get(), request, pattern->vectors.get());
    sizes_.keep(key, hash, made.get());
    request_ = move(request);
    add_owner(made.get());
    return made.get();
  }

  void complete(SizedBound& bound, const Buffer<uint8_t>& request, PyObject* vectors) {
    bound.place = Reference(place_of(*reinterpret_cast<const Request*>(request.data())));
    bound.vectors = Reference(owned(vectors));
  }

  // Where a result goes: most are of one size.
  PyObject* place_of(const Request& filled) {
    const int64_t lies[] = {filled.out_size[0],   filled.out_size[1],   filled.out_size[2],
                            filled.out_stride[0], filled.out_stride[1], filled.out_stride[2]};
    if (place_.get() == nullptr || std::memcmp(lies, lies_, sizeof(lies)) != 0) {
      place_ = Reference(tuple_of({numbers(lies, 3), numbers(lies + 3, 3), owned(dtype_.get())}));
      std::memcpy(lies_, lies, sizeof(lies));
    }
    return owned(place_.get());
  }

  // False where no pattern is for the item's image, or it becomes another size.
  bool prepare(SizedItem& item, const Extent& target) {
    const Extent both[] = {item.given.extent, target};
    const Key key(both, 2);
    item.kept = OwnedBound(sizes_.find(key, key.hash()));
    PyObject* vectors;
    if (item.kept.get() != nullptr) {
      vectors = item.kept->vectors.get();
    } else {
      const SizedPattern* const pattern = fill(item.given.extent, item.given.alike, &target, &item.request);
      if (pattern == nullptr) return false;
      vectors = pattern->vectors.get();
    }
    add_address(item.given.memory, item.addresses);
    for (ptrdiff_t v = 0; v < PyTuple_Size(vectors); ++v) add_address(PyTuple_GetItem(vectors, v), item.addresses);
    item.vectors = vectors;
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
    if (!item.is_new()) return;
    const Extent both[] = {item.given.extent, target};
    const Key key(both, 2);
    complete(*item.kept.get(), item.request, item.vectors);
    sizes_.keep(key, key.hash(), item.kept.get());
  }

  const Reference make_, dtype_;
  const int64_t element_bytes_;
  Reference place_{nullptr};  // of the latest result, which lies so
  int64_t lies_[6];
  SizedPattern* patterns_ = nullptr;
  Buffer<uint8_t> request_;  // its memory, to be filled again
  Sizes<SizedBound> sizes_;
};

}  // namespace polyphase

// Rows of the table that a batch's kernel reads on CUDA, for images of any size whose steps follow from that by templates: as
// `cuda/items.py` makes them, one number after the other. What it cannot tell is refused, and Python does it.
#pragma once

#include <cstring>

#include "polyphase/core/buffer.h"
#include "polyphase/core/hash.h"
#include "polyphase/core/standard.h"
#include "polyphase/launch/device_tiles.h"
#include "polyphase/launch/templates.h"
#include "polyphase/launch/tensors.h"

namespace polyphase {

// `Axis` of `cuda/call.h`.
struct RowAxis {
  int64_t in_size, out_size, in_stride, out_stride, first, index, weight, border, taps, precision;
};
static_assert(sizeof(RowAxis) == 80);

// What the rows of images have in common that differ in their sizes: as `cuda/sized.py` packs it.
struct RowPattern {
  int64_t size[2], stride[3];  // of the image whose row it is, as of `SizedImage`
  int64_t channels;
  int64_t in_pixels;  // they lie side by side
  int64_t least, longest, longest_step;  // of images' sizes, and of bytes from row to row
  int64_t cubic;
  int64_t least_taps, few_taps, most_taps;  // windows of fewer are for another kernel; up to few_taps they have as many
  int64_t words;         // of a window along x that is read by words, which few_taps is not for; else 0
  int64_t tile;          // then, outputs that a block makes,
  int64_t staged_bytes;  // and of shared memory for every pixel they read
  int64_t tile_planes;   // of what is cut into tiles, which numbers of taps are not for; else 0
  // Of fields, in bytes; channel_at: of the step between channels, -1 where it is not there.
  int64_t x_at, channel_at, tiles_at, span_at;
  int64_t shared_bytes, most_shared;  // least and most

  // Of the launch: from output to output, and what the first one's address is a multiple of; blocks of every image, or, of
  // those that take tiles, along: at most.
  int64_t out_step, alignment;
  int64_t along, down, planes;
};

// An image, and how it is resized.
struct SizedImage {
  int64_t size[2], stride[3];  // rows and columns; from channel to channel, row to row and pixel to pixel
  int64_t address, target;
  int64_t shared_bytes;
  TileCut cut;
  // Of one that is new.
  TapRecipe tables[2];  // of rows and columns, but for addresses
  int64_t span;

  bool read(PyObject* tensor, int64_t channels) {
    Extent extent;
    if (!extent.read(tensor) || extent.rank != 3 || extent.size[0] != channels) return false;
    std::memcpy(size, extent.size + 1, sizeof(size));
    std::memcpy(stride, extent.stride, sizeof(stride));
    address = address_of(tensor);
    return PyErr_Occurred() == nullptr;
  }
};

class SizedRows {
 public:
  SizedRows(const RowPattern& pattern, const uint8_t* row, int64_t row_bytes, Templates&& templates)
      : pattern_(pattern), templates_(move(templates)) {
    row_.assign(row, row_bytes);
  }

  // Whether the row is what follows from its own size; without that it is of no use.
  bool holds() {
    SizedImage image;
    std::memcpy(image.size, pattern_.size, sizeof(image.size));
    std::memcpy(image.stride, pattern_.stride, sizeof(image.stride));
    Followed followed;
    if (!templates_.follow(image.size, Drawn(nullptr, 0), &followed) || followed.program < 0) return false;
    program_ = followed.program;
    for (int axis = 0; axis < 2; ++axis) out_size_[axis] = followed.size(axis);
    if (!follow(&image)) return false;
    Buffer<uint8_t> again(row_.size());
    make(&image, 0, again.data());
    return std::memcmp(again.data(), row_.data(), row_.size()) == 0;
  }

  const RowPattern& pattern() const { return pattern_; }
  int64_t row_bytes() const { return row_.size(); }
  // Of outputs, down y and along x.
  int64_t groups(int axis) const { return device::parts(out_size_[axis], device::kGroup); }

  // False for an image whose row is another pattern's.
  bool follow(SizedImage* image) const {
    const auto& size = image->size;
    const auto& stride = image->stride;
    if (min(size[0], size[1]) < pattern_.least || max(size[0], size[1]) > pattern_.longest) return false;
    const bool lies_so = pattern_.in_pixels != 0 ? stride[0] == 1 && stride[2] == pattern_.channels : stride[2] == 1;
    if (!lies_so || stride[1] >= pattern_.longest_step) return false;
    Followed followed;
    if (!templates_.follow(size, Drawn(nullptr, 0), &followed) || followed.program != program_) return false;
    int64_t taps[2];
    for (int axis = 0; axis < 2; ++axis) {
      TapRecipe& table = image->tables[axis];
      if (followed.size(axis) != out_size_[axis] || !path_of(followed, axis, size[axis], &table)) return false;
      taps[axis] = device::most_taps(table);
    }
    image->shared_bytes = pattern_.shared_bytes;
    image->cut = {};
    if (pattern_.tile_planes != 0) return cut(image);
    const int64_t most = max(taps[0], taps[1]);
    if (most < pattern_.least_taps || most > pattern_.most_taps) return false;
    for (TapRecipe& table : image->tables) table.taps = most <= pattern_.few_taps ? pattern_.few_taps : pattern_.most_taps;
    return pattern_.words == 0 || stage(image);
  }

  // The row of an image that was followed, but for the addresses of tensors; its tables are made from an address on.
  void make(SizedImage* image, int64_t at, uint8_t* row) const {
    std::memcpy(row, row_.data(), row_.size());
    RowAxis axes[2];
    std::memcpy(axes, row + pattern_.x_at, sizeof(axes));
    for (int axis = 0; axis < 2; ++axis) {
      TapRecipe& table = image->tables[axis];
      device::place(table, at);
      at += device::table_bytes(table);
      RowAxis& of_row = axes[1 - axis];  // x is first
      const int64_t in_stride = image->stride[1 + axis];
      const int64_t precision = pattern_.tile_planes != 0 ? 16 : -1;  // else the table has it
      of_row = {image->size[axis], table.out_size, in_stride,    of_row.out_stride, table.first,
                0,                 table.weight,   0,            table.taps,        precision};
    }
    std::memcpy(row + pattern_.x_at, axes, sizeof(axes));
    if (pattern_.channel_at >= 0) std::memcpy(row + pattern_.channel_at, &image->stride[0], sizeof(int64_t));
    if (pattern_.words != 0) std::memcpy(row + pattern_.span_at, &image->span, sizeof(int64_t));
    if (pattern_.tile_planes != 0) std::memcpy(row + pattern_.tiles_at, &image->cut, sizeof(TileCut));
  }

 private:
  // `AxisPath` of sampling/axis_maps.py, of crops around one resize.
  bool path_of(const Followed& followed, int axis, int64_t size, TapRecipe* table) const {
    *table = {size, 0, 1, size, 0, pattern_.cubic, 0, 1, size, 0, 1, 0, 0, 0};
    for (int64_t i = 0; i < followed.steps(axis); ++i) {
      const Step& step = followed.step(axis)[i];
      if (step.kind == Step::kSlice) {
        table->begin += step.a;
        table->out_size = step.b - step.a;
      } else if (step.kind == Step::kResize && table->resized == 0) {
        *table = {size, table->begin, 1, table->out_size, step.a, pattern_.cubic, 0, 1, step.a, 0, 1, 0, 0, 0};
      } else {
        return false;
      }
    }
    return table->resized != 0;
  }

  // What a block reads along x, as `Cutter::byte_ring` of device_cuts.h has it.
  bool stage(SizedImage* image) const {
    TapRecipe& table = image->tables[1];
    const int64_t last = device::most_begins(table, pattern_.tile);
    table.taps = 4 * pattern_.words;
    table.form = kInFours;
    image->span = (last + 3) / 4 * 4 + 4 * pattern_.words;
    image->shared_bytes += image->span * pattern_.staged_bytes;
    return image->shared_bytes <= pattern_.most_shared;
  }

  bool cut(SizedImage* image) const {
    TapRecipe &y = image->tables[0], &x = image->tables[1];
    const int64_t matrices = max(device::matrices_of(x), device::matrices_of(y));
    y.taps = x.taps = matrices;
    y.form = kMatricesAlongY;
    x.form = kMatricesAlongX;
    const int64_t channels = pattern_.in_pixels != 0 ? pattern_.channels : 1;
    const device::TileLayout layout = {pattern_.tile_planes, channels, pattern_.shared_bytes, pattern_.most_shared};
    return device::cut_into_tiles(
        layout, matrices, x.out_size, y.out_size, [&](int64_t count) { return device::most_inputs(x, count); },
        [&](int64_t count) { return device::most_inputs(y, count); }, image->cut, image->shared_bytes);
  }

  const RowPattern pattern_;
  Buffer<uint8_t> row_;
  const Templates templates_;
  int64_t out_size_[2];
  int64_t program_ = -1;
};

// Rows of images whose tables were made, by stream: what is made on one is not for another.
class SeenRows {
 public:
  static constexpr int64_t kMost = 1024;

  struct Key {
    int64_t stream, size[2], stride[3];

    Key(int64_t of, const SizedImage& image) : stream(of) {
      std::memcpy(size, image.size, sizeof(size));
      std::memcpy(stride, image.stride, sizeof(stride));
    }
  };

  explicit SeenRows(int64_t row_bytes) : row_bytes_(row_bytes) { places_.resize(kSlots); }

  // Null where there is none.
  const uint8_t* find(const Key& key, SizedImage* image) const {
    const int32_t place = places_[slot_of(key)];
    if (place == 0) return nullptr;
    image->shared_bytes = seen_[place - 1].shared_bytes;
    image->cut = seen_[place - 1].cut;
    return rows_.data() + (place - 1) * row_bytes_;
  }

  void insert(const Key& key, const uint8_t* row, const SizedImage& image) {
    int32_t& place = places_[slot_of(key)];
    if (place == 0) {
      seen_.push_back({key, image.shared_bytes, image.cut});
      rows_.resize(seen_.size() * row_bytes_);
      place = static_cast<int32_t>(seen_.size());
    }
    std::memcpy(rows_.data() + (place - 1) * row_bytes_, row, row_bytes_);
  }

  int64_t size() const { return seen_.size(); }
  void clear() {
    seen_.resize(0);
    places_.fill(kSlots, 0);
  }

 private:
  static constexpr int64_t kSlots = 4 * kMost;
  struct Seen {
    Key key;
    int64_t shared_bytes;
    TileCut cut;
  };

  // Of a key, or the one it is to have.
  int64_t slot_of(const Key& key) const {
    for (int64_t slot = hash_of(&key, sizeof(Key) / 8) % kSlots;; slot = (slot + 1) % kSlots) {
      if (places_[slot] == 0 || std::memcmp(&seen_[places_[slot] - 1].key, &key, sizeof(Key)) == 0) return slot;
    }
  }

  const int64_t row_bytes_;
  Buffer<int32_t> places_;  // from 1; 0 for none
  Buffer<Seen> seen_;
  Buffer<uint8_t> rows_;
};

}  // namespace polyphase

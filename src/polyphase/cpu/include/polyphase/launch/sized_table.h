// The table of a batch on CUDA, whose images have any size: rows that were seen, and those whose tables are to be made.
#pragma once

#include <cstring>

#include "polyphase/core/buffer.h"
#include "polyphase/launch/python_objects.h"
#include "polyphase/launch/sized_rows.h"

namespace polyphase {

// kept: memory that has the tables of rows that were seen. All of it is changed while nobody else can: Python's lock is
// held, and nothing of Python's is called.
struct SizedBatch {
  SizedRows rows;
  SeenRows seen;
  Buffer<PyObject*> kept;

  ~SizedBatch() { forget(); }
  void forget() {
    const Buffer<PyObject*> before(move(kept));
    seen.clear();
    for (PyObject* one : before) Py_DecRef(one);
  }
};

// Of `cuda/batch.h`.
struct TileOfCall {
  int32_t call, number;
};

// Images of a batch, and their rows; `fresh` are those whose tables are to be made.
struct SizedTable {
  Buffer<SizedImage> images;
  Buffer<int64_t> fresh, left;  // numbers among the images; places of those that are another's, among all
  Buffer<uint8_t> rows;
  Buffer<TapRecipe> recipes;
  Buffer<TileOfCall> tiles;
  int64_t table_bytes = 0, shared_bytes = 0;

  void add(const SizedBatch& batch, PyObject* tensor, int64_t place, int64_t target, int64_t stream) {
    SizedImage image;
    const bool lies_so = image.read(tensor, batch.rows.pattern().channels);
    if (PyErr_Occurred() != nullptr) throw PythonError();
    const uint8_t* const row = lies_so ? batch.seen.find({stream, image}, &image) : nullptr;
    if (row == nullptr && !(lies_so && batch.rows.follow(&image))) return left.push_back(place);
    const int64_t bytes = batch.rows.row_bytes(), number = images.size();
    rows.resize((number + 1) * bytes);
    if (row != nullptr) {
      std::memcpy(rows.data() + number * bytes, row, bytes);
    } else {
      fresh.push_back(number);
      for (const TapRecipe& table : image.tables) table_bytes += device::table_bytes(table);
    }
    image.target = target;
    images.push_back(image);
    shared_bytes = max(shared_bytes, image.shared_bytes);
  }

  // at: where new tables are made.
  void fill(const SizedRows& of, int64_t at) {
    for (const int64_t number : fresh) {
      of.make(&images[number], at, rows.data() + number * of.row_bytes());
      for (const TapRecipe& table : images[number].tables) {
        at += device::table_bytes(table);
        recipes.push_back(table);
      }
    }
    for (int64_t i = 0; i < images.size(); ++i) {
      const int64_t addresses[] = {images[i].target, images[i].address};
      std::memcpy(rows.data() + i * of.row_bytes(), addresses, sizeof(addresses));
    }
    deal_tiles(of.groups(1), of.groups(0), of.pattern().along);
  }

 private:
  // As `dealt` of cuda/tiles.py: of images of so many groups along x and down y, to at most so many blocks.
  void deal_tiles(int64_t columns, int64_t units, int64_t most_blocks) {
    const Buffer<TileOfCall> by_cost = tiles_by_cost(columns, units);
    const int64_t count = by_cost.size(), blocks = min(most_blocks, count);
    if (count == 0) return;
    tiles.resize_unset(count);
    const int64_t turns = count / blocks, left = count - turns * blocks;
    const TileOfCall* const from = by_cost.data();
    for (int64_t block = 0, next = 0; block < blocks; ++block, ++next) {
      const int64_t own = turns + (block < left ? 1 : 0);
      next = block == left ? block % own : next == own ? 0 : next;  // the block's number, over so many
      TileOfCall* to = tiles.data() + block;
      for (int64_t turn = 0, at = next; turn < own; ++turn, to += blocks) {
        const bool backwards = at % 2 == 1 && at < turns;
        *to = from[at * blocks + (backwards ? blocks - 1 - block : block)];
        at = at + 1 == own ? 0 : at + 1;
      }
    }
  }

  // The dearest first.
  Buffer<TileOfCall> tiles_by_cost(int64_t columns, int64_t units) const {
    int64_t count = 0, most = 0;
    for (const SizedImage& image : images) {
      count += image.cut.tiles;
      if (image.cut.tiles > 0) most = max(most, image.cut.cost());
    }
    Buffer<TileOfCall> sorted;
    if (count == 0) return sorted;
    Buffer<int64_t> places(most + 2);  // of the next one of a cost, from the greatest on
    for (const SizedImage& image : images) {
      image.cut.each_run(columns, units, [&](int64_t cost, int64_t many, int64_t) { places[most - cost + 1] += many; });
    }
    for (int64_t i = 1; i < places.size(); ++i) places[i] += places[i - 1];
    sorted.resize_unset(count);
    for (int64_t i = 0; i < images.size(); ++i) {
      images[i].cut.each_run(columns, units, [&](int64_t cost, int64_t many, int64_t first) {
        TileOfCall* const to = sorted.data() + places[most - cost];
        for (int64_t k = 0; k < many; ++k) to[k] = {static_cast<int32_t>(i), static_cast<int32_t>(first + k)};
        places[most - cost] += many;
      });
    }
    return sorted;
  }
};

}  // namespace polyphase

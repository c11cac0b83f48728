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

// Images of a batch, and their rows; `fresh` are those whose tables are to be made.
struct SizedTable {
  Buffer<SizedImage> images;
  Buffer<int64_t> fresh, left;  // numbers among the images; places of those that are another's, among all
  Buffer<uint8_t> rows;
  Buffer<TapRecipe> recipes;
  int64_t table_bytes = 0, shared_bytes = 0;

  void add(const SizedBatch& batch, PyObject* tensor, int64_t place, int64_t target, int64_t stream) {
    SizedImage image;
    const bool lies_so = image.read(tensor, batch.rows.pattern().channels);
    if (PyErr_Occurred() != nullptr) throw PythonError();
    const uint8_t* const row = lies_so ? batch.seen.find({stream, image}, &image.shared_bytes) : nullptr;
    if (row == nullptr && !(lies_so && batch.rows.follow(&image))) return left.push_back(place);
    const int64_t bytes = batch.rows.row_bytes(), number = images.size();
    rows.resize((number + 1) * bytes);
    if (row != nullptr) {
      std::memcpy(rows.data() + number * bytes, row, bytes);
    } else {
      fresh.push_back(number);
      for (const TapRecipe& table : image.tables) table_bytes += SizedRows::table_bytes(table);
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
        at += SizedRows::table_bytes(table);
        recipes.push_back(table);
      }
    }
    for (int64_t i = 0; i < images.size(); ++i) {
      const int64_t addresses[] = {images[i].target, images[i].address};
      std::memcpy(rows.data() + i * of.row_bytes(), addresses, sizeof(addresses));
    }
  }
};

}  // namespace polyphase

// Points of a grid, or of an output, that are walked along as one row, whatever rows they lie in.
#pragma once

#include <cstdint>

namespace polyphase {

// So many rows of a plane, and points of a row, and how far apart they are.
struct PointRows {
  int64_t rows, length;
  int64_t z_stride, y_stride, x_stride;

  // Whether they lie as one row: then `row_stride` apart.
  bool are_one(int64_t planes) const {
    return (rows == 1 || length == 1 || y_stride == length * x_stride) && (planes == 1 || z_stride == rows * row_stride() * length);
  }
  int64_t row_stride() const { return length > 1 ? x_stride : rows > 1 ? y_stride : z_stride; }
};

// Goes from point to point.
class PointWalk {
 public:
  PointWalk(const PointRows& of, int64_t point)
      : of_(of), x_(point % of.length), y_(point / of.length % of.rows), z_(point / of.length / of.rows) {
    enter_row();
  }

  int64_t offset() const { return offset_; }
  void next() {
    offset_ += of_.x_stride;
    if (++x_ < of_.length) return;
    x_ = 0;
    if (++y_ == of_.rows) {
      y_ = 0;
      ++z_;
    }
    enter_row();
  }

 private:
  void enter_row() { offset_ = z_ * of_.z_stride + y_ * of_.y_stride + x_ * of_.x_stride; }

  const PointRows of_;
  int64_t x_, y_, z_;
  int64_t offset_ = 0;
};

}  // namespace polyphase

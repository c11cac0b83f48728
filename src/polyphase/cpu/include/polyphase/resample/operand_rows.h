// What a program reads besides its image, row by row.
#pragma once

#include "polyphase/core/abi.h"
#include "polyphase/core/buffer.h"
#include "polyphase/core/rows.h"
#include "polyphase/core/scalar.h"
#include "polyphase/core/standard.h"
#include "polyphase/resample/spaced.h"

namespace polyphase {

template <class Prologue, class Epilogue>
class OperandRows {
 public:
  explicit OperandRows(const MapsCall& call) : call_(call) {
    rows_.planar = call.channel_axis >= 0;
    if (!kPlain && !rows_.planar) expand_vectors();
  }

  // Goes to the first place of all outer axes, and from there to place i of one of them.
  void enter() {
    for (int64_t t = 0; t < call_.tensor_count; ++t) offsets_[t] = 0;
  }
  void enter(int64_t axis, int64_t i) {
    for (int64_t t = 0; t < call_.tensor_count; ++t) offsets_[t] += i * call_.tensors[t].outer_strides[axis];
    if (kPlain || axis != call_.channel_axis) return;
    for (int64_t v = 0; v < call_.vector_count; ++v) {
      const ChannelOperand& vector = call_.vectors[v];
      rows_.vectors[v] = static_cast<const uint8_t*>(vector.data) + i * vector.element_bytes;
    }
  }

  // Vectors alone, which are the same for all rows of a place.
  const RowOperands& vectors() const { return rows_; }

  // And the tensors' rows for output row (y, z).
  const RowOperands& at(int64_t y, int64_t z) {
    for (int64_t t = 0; t < call_.tensor_count; ++t) {
      const Operand& tensor = call_.tensors[t];
      const int64_t offset = offsets_[t] + y * tensor.y_stride + z * tensor.z_stride;
      const uint8_t* row = static_cast<const uint8_t*>(tensor.data) + offset * tensor.element_bytes;
      const bool dense = are_dense(tensor.x_stride, tensor.channel_stride, call_.channels, call_.x.out_size);
      rows_.tensors[t] = dense ? row : gathered(t, row);
    }
    return rows_;
  }

 private:
  static constexpr bool kPlain = Prologue::kIdentity && Epilogue::kIdentity;

  // Per-channel vectors of interleaved rows, once for every element of a row.
  void expand_vectors() {
    const int64_t pixels = max(call_.x.in_size, call_.x.out_size);
    for (int64_t v = 0; v < call_.vector_count; ++v) {
      const int64_t bytes = call_.channels * call_.vectors[v].element_bytes;
      expanded_[v].resize(bytes * pixels);
      fill_repeating(expanded_[v].data(), bytes * pixels, call_.vectors[v].data, bytes);
      rows_.vectors[v] = expanded_[v].data();
      if ((Prologue::kDivisors | Epilogue::kDivisors) >> v & 1) expand_reciprocals(v, call_.channels * pixels);
    }
  }

  void expand_reciprocals(int64_t v, int64_t count) {
    reciprocals_[v].resize(count);
    const float* divisors = reinterpret_cast<const float*>(expanded_[v].data());
    for (int64_t i = 0; i < count; ++i) reciprocals_[v].data()[i] = reciprocal_of(divisors[i]);
    rows_.reciprocals[v] = reciprocals_[v].data();
  }

  const void* gathered(int64_t t, const uint8_t* row) {
    const Operand& tensor = call_.tensors[t];
    const int64_t bytes = tensor.element_bytes, pixel = call_.channels * bytes;
    gathered_[t].resize(call_.x.out_size * pixel);
    for (int64_t c = 0; c < call_.channels; ++c) {
      const uint8_t* channel = row + c * tensor.channel_stride * bytes;
      copy_spaced({channel, tensor.x_stride * bytes, gathered_[t].data() + c * bytes, pixel}, call_.x.out_size, bytes);
    }
    return gathered_[t].data();
  }

  const MapsCall& call_;
  int64_t offsets_[kMaxOperands] = {};  // of the outer axes' place, in elements
  RowOperands rows_ = {};
  Buffer<uint8_t> expanded_[kMaxOperands], gathered_[kMaxOperands];
  Buffer<float> reciprocals_[kMaxOperands];
};

}  // namespace polyphase

// Attention at sampled places, as the launcher and the kernels of both devices hand it on: plain data, no ownership.
//
// An output, which is a vector of channels for a query and a head, is a sum over points. A point's place in a plane of the
// value is sampled, bilinearly and with zeros around the plane, and the sample is multiplied by the point's weight. The value
// has several planes, the levels; every level has points of its own. Channels lie side by side everywhere.
#pragma once

#include <cstdint>

namespace polyphase {

constexpr int kMostLevels = 8;

struct Level {
  int64_t first;  // of its pixels, which lie row by row
  int64_t height, width;
  int64_t points;
};

// In elements.
struct ValueStrides {
  int64_t batch, pixel, head;
};
struct OutputStrides {
  int64_t batch, query, head;
};

// places: (batch, query, head, point, x and y), dense, from -1 to 1. weights: (batch, query, head, point), dense. Gradients
// are dense, those of the value (batch, pixel, head, channel).
struct AttentionCall {
  void* output;  // or the gradient that came in, which is only read
  const void *value, *places, *weights;
  void* value_gradient;  // null where it is not asked for; else zeros, to which is added
  void *places_gradient, *weights_gradient;

  int64_t batch, queries, heads, channels, points, pixels;
  int64_t align_corners, level_count;
  Level levels[kMostLevels];
  ValueStrides value_strides;
  OutputStrides output_strides;  // or of the gradient that came in

  int64_t outputs() const { return batch * queries * heads; }
  ValueStrides gradient_strides() const { return {pixels * heads * channels, heads * channels, channels}; }
};

}  // namespace polyphase

// The gradients of a warp: of the image, by adding to the pixels each output was made of; of the coordinates, by the
// slopes of the weights.
//
// Deterministic: every pixel of the image's gradient is summed by one thread, in the order of the output's pixels,
// however many threads there are. The gradient of a matrix, or of a formula's entries, is summed by row of the output; Python
// adds up the rows.
#pragma once

#include <cstring>

#include "polyphase/core/buffer.h"
#include "polyphase/warp/coordinate_gradient.h"
#include "polyphase/warp/image_gradient.h"

namespace polyphase {

template <class Load, class Filter, class G, class P, int kAxes, class Formula = NoFormula>
struct WarpGradients {
  static void run(const KernelCall& any) {
    const WarpCall& call = static_cast<const WarpCall&>(any);
    WarpCall* context = const_cast<WarpCall*>(&call);
    if (call.image_gradient != nullptr) {
      if (makes_both(call)) return call.parallel(call.batch, call.threads, both_of_images, context);
      call.parallel(call.batch * parts(call), call.threads, image_part, context);
    }
    if constexpr (kSloped) {
      if (call.coordinate_gradient == nullptr) return;
      if constexpr (Load::kIdentity && !Coordinates::Tile::kRows) {
        if (is_worth_turning(call)) return ByTurnedImages<V, Rows>::run(call);
      }
      Rows{call, 0}.share(call.batch);
    }
  }

  static constexpr Kernel kernel() { return {run, 0, 0}; }

 private:
  using V = typename Load::To;
  using Coordinates = CoordinateGradient<Load, Filter, G, P, kAxes, Formula>;
  using Image = ImageGradient<Load, Filter, G, P, kAxes, Formula>;
  using Tile = typename Coordinates::Tile;
  static constexpr bool kSloped = Filter::kTaps > 1;

  // Whether an image's gradient and its coordinates' are made together, by the same taps: where each image is one thread's, and
  // both lie alike, as they are.
  static bool makes_both(const WarpCall& call) {
    if (!kSloped || call.coordinate_gradient == nullptr || parts(call) > 1) return false;
    const ImageStrides &image = call.image_strides, &gradient = call.image_gradient_strides;
    const bool alike = image.x == gradient.x && image.y == gradient.y && image.z == gradient.z;
    return alike && !is_worth_turning(call) && !is_worth_adding_turned(call, call.channels);
  }

  static void both_of_images(void* context, int64_t begin, int64_t end) {
    if constexpr (kSloped) {
      const WarpCall& call = *static_cast<const WarpCall*>(context);
      const ImageStrides& s = call.image_gradient_strides;
      Tile tile(call);
      Image image(call, tile);
      Coordinates coordinates(call, tile);
      for (int64_t row = begin * tile.rows(); row < end * tile.rows(); ++row) {
        const int64_t n = row / tile.rows(), r = row % tile.rows();
        tile.enter_row(n, r);
        coordinates.begin_row();
        for (int64_t x = 0; x < call.out_size[2]; x += kTile) {
          tile.enter_tile(x, s, true);
          image.add_tile(0, call.channels, static_cast<V*>(call.image_gradient) + n * s.batch, s);
          coordinates.add_tile(n, r, x);
        }
        coordinates.end_row(row);
      }
    }
  }

  // An image is split by its channels where there are fewer images than threads: each part goes over the whole output.
  static int64_t parts(const WarpCall& call) {
    return call.batch >= call.threads ? 1 : min(call.channels, call.threads);
  }

  static void image_part(void* context, int64_t begin, int64_t end) {
    const WarpCall& call = *static_cast<const WarpCall*>(context);
    const ImageStrides& s = call.image_gradient_strides;
    const int64_t count = parts(call), pixels = pixels_of(call);
    const bool turns = !Coordinates::Tile::kRows && is_worth_adding_turned(call, call.channels / count);
    Tile tile(call);
    Image gradient(call, tile);
    Kept<Buffer<V>> turned;
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t n = unit / count, part = unit % count;
      const int64_t first = call.channels * part / count, last = call.channels * (part + 1) / count;
      V* image = static_cast<V*>(call.image_gradient) + n * s.batch + first * s.channel;
      if (!turns) {
        gradient.run(n, first, last, image, s);
        continue;
      }
      const int64_t channels = last - first;
      turned->resize_unset(pixels * channels);
      std::memset(turned->data(), 0, static_cast<size_t>(pixels * channels) * sizeof(V));
      gradient.run(n, first, last, turned->data(), turned_strides(call, channels));
      turn(turned->data(), channels, image, s.channel, pixels, channels);
    }
  }

  // Coordinates of some images, shared by threads: by tiles where their points are one row, else by rows.
  struct Rows {
    const WarpCall& call;
    int64_t first_image;

    void share(int64_t images) { call.parallel(images * count(), call.threads, some, this); }
    static void some(void* context, int64_t begin, int64_t end) { static_cast<const Rows*>(context)->run(begin, end); }
    // Of an image.
    int64_t count() const {
      return call.is_points() ? Coordinates::tiles_of_points(call) : call.out_size[0] * call.out_size[1];
    }
    void run(int64_t begin, int64_t end) const {
      const int64_t before = first_image * count();
      Tile tile(call);
      Coordinates coordinates(call, tile);
      if (call.is_points()) return coordinates.run_tiles(before + begin, before + end);
      coordinates.run(before + begin, before + end);
    }
  };
};

}  // namespace polyphase

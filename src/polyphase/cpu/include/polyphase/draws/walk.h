// A table of draws, gone through for an image of a size: the numbers that torchvision's transforms would draw for it.
// `pipelines/draws.py` writes tables, says what each draw gives, and has the plain twin.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "polyphase/core/buffer.h"
#include "polyphase/draws/generator.h"

namespace polyphase {

// A draw is a kind, how many values follow, and these. Those of kChance and kFork have other draws among them.
enum class DrawKind : int64_t {
  kUniform,     // least, most
  kInteger,     // start, end
  kNormal,      // mean, deviation
  kChance,      // p, whether p itself is below it; draws that are made if it is below
  kOrder,       // count
  kChoice,      // shares
  kResizedBox,  // shares of the area: least, most; likewise logarithms of ratios, and ratios -> top, left, height, width
  kErasedBox,   // likewise, without ratios -> top, left, height, width; four times -1 where nothing fits
  kPlace,       // height, width, border left, top, right, bottom, whether it may grow, whether both are drawn if one is
                // -> top, left, and the border that is needed
  kShift,       // shares of width and height -> rounded amounts
  kCorners,     // distortion -> x and y of each corner, from the top left one clockwise
  kFork,        // count, and of each branch its length and draws -> which one, then its numbers
  kOneOf,       // numbers -> one of them
  kJitteredSize,  // a size that is fitted into, width first; the least scale, and how much more it may be -> height, width
  kCanvas,        // the least scale of sides, and how much more it may be -> border left, top, right, bottom
  kKinds
};

// MKL's `vmsExp`, by which `torch.exp` computes; null where torch has another.
using ManyExp = void (*)(int count, const float* of, float* to, int64_t mode);
constexpr int64_t kHighAccuracy = 0x140102;

// How torch draws: by what it computes exp, and how it rounds.
struct Drawing {
  ManyExp exp;
  int64_t rounding;
};

// Of an image that draws are made for.
constexpr int64_t kMostSide = 1 << 24;
inline bool is_side(int64_t side) { return side >= 1 && side <= kMostSide; }

class DrawWalk {
 public:
  DrawWalk(Generator& generator, ManyExp exp, int64_t height, int64_t width, Buffer<double>& numbers)
      : generator_(generator), exp_(exp), size_{height, width}, numbers_(numbers) {}

  // False where torch would raise something, or it is not known what torch does.
  bool take_all(const double* table, const double* end) { return is_size() && take(table, end); }

 private:
  bool take(const double* at, const double* end) {
    while (at < end) {
      if (end - at < 2 || !(at[0] >= 0 && at[0] < static_cast<double>(DrawKind::kKinds))) return false;
      if (!(at[1] >= 0 && at[1] <= static_cast<double>(end - at - 2))) return false;
      const double *const values = at + 2, *const next = values + static_cast<int64_t>(at[1]);
      if (!draw(static_cast<DrawKind>(static_cast<int64_t>(at[0])), values, next - values)) return false;
      at = next;
    }
    return true;
  }

  static constexpr double kMostWhole = 1 << 28;
  static constexpr int64_t kMostOrdered = 256;
  static constexpr int kTries = 10;

  bool draw(DrawKind kind, const double* values, int64_t count) {
    if (count < least_values(kind)) return false;
    switch (kind) {
      case DrawKind::kUniform: return uniform(values[0], values[1]);
      case DrawKind::kInteger: return is_whole(values[0]) && is_whole(values[1]) && integer(whole(values[0]), whole(values[1]));
      case DrawKind::kNormal: return give(generator_.normal(values[0], values[1]));
      case DrawKind::kChance: return chance(values, count);
      case DrawKind::kOrder: return is_whole(values[0]) && order(whole(values[0]));
      case DrawKind::kChoice: return choice(values, count);
      case DrawKind::kResizedBox: return resized_box(values);
      case DrawKind::kErasedBox: return erased_box(values);
      case DrawKind::kPlace: return place(values);
      case DrawKind::kShift: return shift(values[0] * size_[1]) && shift(values[1] * size_[0]);
      case DrawKind::kCorners: return corners(values[0]);
      case DrawKind::kFork: return fork(values, count);
      case DrawKind::kOneOf: return count <= Generator::kMostBelow && give(values[generator_.below(count)]);
      case DrawKind::kJitteredSize: return jittered_size(values);
      case DrawKind::kCanvas: return canvas(values);
      default: return false;
    }
  }

  static int64_t least_values(DrawKind kind) {
    switch (kind) {
      case DrawKind::kOrder:
      case DrawKind::kChoice:
      case DrawKind::kFork:
      case DrawKind::kOneOf:
      case DrawKind::kCorners: return 1;
      case DrawKind::kResizedBox: return 6;
      case DrawKind::kJitteredSize:
      case DrawKind::kErasedBox: return 4;
      case DrawKind::kPlace: return 8;
      default: return 2;
    }
  }

  // Numbers of Python's kind, of which images' sizes and borders are made.
  static bool is_whole(double value) { return value >= -kMostWhole && value <= kMostWhole && value == std::floor(value); }
  static int64_t whole(double value) { return static_cast<int64_t>(value); }
  // As Python rounds: halves to even.
  static double rounded(double value) { return std::nearbyint(value); }

  bool give(double number) {
    numbers_.push_back(number);
    return true;
  }

  bool uniform(double least, double most) {
    const auto from = static_cast<float>(least), to = static_cast<float>(most);
    return least <= most && std::isfinite(to - from) && give(generator_.uniform(from, to));
  }

  bool integer(int64_t start, int64_t end) {
    if (start >= end || end - start > Generator::kMostBelow) return false;
    return give(static_cast<double>(start + generator_.below(end - start)));
  }

  bool chance(const double* values, int64_t count) {
    const float drawn = generator_.unit(), p = static_cast<float>(values[0]);
    const bool is_below = values[1] != 0 ? drawn <= p : drawn < p;
    give(is_below ? 1 : 0);
    return !is_below || take(values + 2, values + count);
  }

  bool fork(const double* values, int64_t count) {
    const double *at = values + 1, *const end = values + count;
    if (!is_whole(values[0]) || !integer(0, whole(values[0]))) return false;
    for (int64_t before = whole(numbers_.back());; --before) {
      if (at >= end || !(*at >= 0 && *at <= static_cast<double>(end - at - 1))) return false;
      const double *const draws = at + 1, *const next = draws + static_cast<int64_t>(*at);
      if (before == 0) return take(draws, next);
      at = next;
    }
  }

  // torch.randperm
  bool order(int64_t count) {
    if (count < 1 || count > kMostOrdered) return false;
    const int64_t first = numbers_.size();
    for (int64_t i = 0; i < count; ++i) give(static_cast<double>(i));
    for (int64_t i = 0; i + 1 < count; ++i) swap(numbers_[first + i], numbers_[first + i + generator_.below(count - i)]);
    return true;
  }

  // torch.multinomial(shares, 1): of shares, each divided by a number drawn, the greatest.
  bool choice(const double* shares, int64_t count) {
    int64_t chosen = -1;
    float greatest = 0, total = 0;
    for (int64_t i = 0; i < count; ++i) {
      const auto share = static_cast<float>(shares[i]);
      const float of = share / generator_.exponential();
      if (!(share >= 0) || !std::isfinite(share) || std::isnan(of)) return false;
      total += share;
      if (chosen >= 0 && of <= greatest) continue;
      chosen = i;
      greatest = of;
    }
    return total > 0 && std::isfinite(total) && give(static_cast<double>(chosen));
  }

  // A box's area and ratio, drawn; false where torch or Python would raise something.
  bool area_and_ratio(const double* values, double* area, double* ratio) {
    if (exp_ == nullptr || !(values[0] >= 0 && values[0] <= values[1] && values[2] <= values[3])) return false;
    if (!(values[1] <= kMostSide && values[2] >= -64 && values[3] <= 64)) return false;
    *area = static_cast<double>(size_[0] * size_[1]) * generator_.uniform(static_cast<float>(values[0]), static_cast<float>(values[1]));
    const float logarithm = generator_.uniform(static_cast<float>(values[2]), static_cast<float>(values[3]));
    float made;
    exp_(1, &logarithm, &made, kHighAccuracy);
    *ratio = made;
    return true;
  }

  bool give_box(int64_t top, int64_t left, double height, double width) {
    give(static_cast<double>(top));
    give(static_cast<double>(left));
    give(height);
    return give(width);
  }
  bool give_box_at_random(double height, double width) {
    const int64_t top = generator_.below(size_[0] - whole(height) + 1);
    return give_box(top, generator_.below(size_[1] - whole(width) + 1), height, width);
  }

  bool resized_box(const double* values) {
    for (int tried = 0; tried < kTries; ++tried) {
      double area, ratio;
      if (!area_and_ratio(values, &area, &ratio)) return false;
      const double width = rounded(std::sqrt(area * ratio)), height = rounded(std::sqrt(area / ratio));
      if (width > 0 && width <= size_[1] && height > 0 && height <= size_[0]) return give_box_at_random(height, width);
    }
    const double least = values[4], most = values[5], ratio = static_cast<double>(size_[1]) / static_cast<double>(size_[0]);
    double height = static_cast<double>(size_[0]), width = static_cast<double>(size_[1]);
    if (!(least > 0 && most > 0)) return false;
    if (ratio < least) {
      height = rounded(width / least);
    } else if (ratio > most) {
      width = rounded(height * most);
    }
    return give_box((size_[0] - whole(height)) >> 1, (size_[1] - whole(width)) >> 1, height, width);
  }

  bool erased_box(const double* values) {
    for (int tried = 0; tried < kTries; ++tried) {
      double area, ratio;
      if (!area_and_ratio(values, &area, &ratio)) return false;
      const double height = rounded(std::sqrt(area * ratio)), width = rounded(std::sqrt(area / ratio));
      if (height < size_[0] && width < size_[1]) return give_box_at_random(height, width);
    }
    return give_box(-1, -1, -1, -1);
  }

  bool place(const double* values) {
    for (int i = 0; i < 6; ++i) {
      if (!is_whole(values[i])) return false;
    }
    const int64_t target[2] = {whole(values[0]), whole(values[1])};
    int64_t before[2] = {whole(values[3]), whole(values[2])}, after[2] = {whole(values[5]), whole(values[4])};  // top and left
    int64_t spare[2];
    const int64_t size[2] = {size_[0], size_[1]};
    for (int axis = 0; axis < 2; ++axis) {
      spare[axis] = before[axis] + size[axis] + after[axis] - target[axis];
      if (spare[axis] >= 0) continue;
      if (values[6] == 0) return false;
      before[axis] -= spare[axis];
      after[axis] -= spare[axis];
      spare[axis] = -spare[axis];
    }
    if (spare[0] > kMostSide || spare[1] > kMostSide) return false;
    const bool both = values[7] != 0 && (spare[0] > 0 || spare[1] > 0);
    for (const int64_t one : spare) give(one > 0 || both ? static_cast<double>(generator_.below(one + 1)) : 0);
    for (const int64_t* sides : {before, after}) {
      give(static_cast<double>(sides[1]));
      give(static_cast<double>(sides[0]));
    }
    return true;
  }

  bool shift(double most) {
    if (!uniform(-most, most)) return false;
    numbers_.back() = rounded(numbers_.back());
    return true;
  }

  bool corners(double distortion) {
    if (!(distortion >= 0 && distortion <= 1)) return false;
    const int64_t across = whole(distortion * static_cast<double>(size_[1] / 2)) + 1;
    const int64_t down = whole(distortion * static_cast<double>(size_[0] / 2)) + 1;
    const int64_t starts[4][2] = {{0, 0}, {size_[1] - across, 0}, {size_[1] - across, size_[0] - down}, {0, size_[0] - down}};
    for (const auto& start : starts) {
      if (!integer(start[0], start[0] + across) || !integer(start[1], start[1] + down)) return false;
    }
    return true;
  }

  // A number from `least` on; each operation is rounded, as torch's are.
  float from(double least, double range) {
    return static_cast<float>(least) + generator_.unit() * static_cast<float>(range);
  }

  // False where it is no size of an image.
  static bool scaled(int64_t side, float by, int64_t* to) {
    const float made = static_cast<float>(side) * by;
    *to = made >= 0 && made <= kMostSide ? static_cast<int64_t>(made) : -1;
    return *to >= 0;
  }

  bool jittered_size(const double* values) {
    const double fits = min(values[1] / static_cast<double>(size_[0]), values[0] / static_cast<double>(size_[1]));
    const float ratio = static_cast<float>(fits) * from(values[2], values[3]);
    int64_t height, width;
    if (!scaled(size_[0], ratio, &height) || !scaled(size_[1], ratio, &width)) return false;
    return give(static_cast<double>(height)) && give(static_cast<double>(width));
  }

  bool canvas(const double* values) {
    const float scale = from(values[0], values[1]);
    int64_t height, width, left, top;
    if (!scaled(size_[0], scale, &height) || !scaled(size_[1], scale, &width)) return false;
    const int64_t across = width - size_[1], down = height - size_[0];
    if (!scaled(across, generator_.unit(), &left) || !scaled(down, generator_.unit(), &top)) return false;
    for (const int64_t one : {left, top, across - left, down - top}) give(static_cast<double>(one));
    return true;
  }

  bool is_size() const { return is_side(size_[0]) && is_side(size_[1]); }

  Generator& generator_;
  const ManyExp exp_;
  const int64_t size_[2];  // of the image: height, width
  Buffer<double>& numbers_;
};

}  // namespace polyphase

// From a Request to a call that lacks only its addresses: tables found, dimensions arranged.
//
// Python has checked that what it hands over belongs together.
#pragma once

#include <cstring>

#include "polyphase/core/abi.h"
#include "polyphase/core/buffer.h"
#include "polyphase/core/cache.h"
#include "polyphase/core/standard.h"
#include "polyphase/launch/dimensions.h"
#include "polyphase/launch/table_cache.h"
#include "polyphase/launch/threads.h"
#include "polyphase/warp/abi.h"

namespace polyphase {

// Fewer elements than this are not worth waking a thread for.
constexpr int64_t kElementsPerThread = 32768;
constexpr int64_t kWarpedElementsPerThread = 16384;

// A call that lacks only its addresses, and what it points at.
struct Bound {
  union AnyCall {
    KernelCall any;  // what both begin with
    MapsCall maps;
    WarpCall warp;
  };

  const Kernel* kernel = nullptr;
  AnyCall call = {};
  int64_t buffer_count = 0;  // tensors that a launch brings, operands aside
  int64_t most_threads = 1;  // more would not be worth waking
  int64_t written_bytes = 0;  // of the output's own memory
  SharedTable tables[kMaxOuter + 3];
  int64_t table_count = 0;
  Buffer<uint8_t> borders;
  Buffer<double> numbers;
};

// Axis maps: which dimension is read along rows, which are summed over, which are merely walked along.
class MapsBinder {
 public:
  MapsBinder(const Request& request, const Tail& tail, Bound& bound)
      : request_(request), tail_(tail), bound_(bound), call_(bound.call.maps) {
    call_.sampler = reinterpret_cast<const Sampler*>(request.sampler);
  }

  void bind() {
    read_dimensions();
    read_borders();
    if (request_.moved_bytes > 0) elements_as_bytes();
    Geometry geometry;
    const bool any_order = call_.sampler == nullptr || call_.sampler->any_order;
    if (!arrange(dimensions_, max<int64_t>(request_.moved_bytes, 1), call_.tensor_count, any_order, &geometry)) {
      throw TooManyDimensions();
    }
    choose_row(geometry, any_order);
    fill_call(geometry);
    read_rows();
    bound_.buffer_count = 2;
    bound_.most_threads = most_elements() / kElementsPerThread;
    if (request_.transposed != 0 && request_.border_size == 0 && share_of_sums(call_.y) * share_of_sums(call_.z) < 0.5) {
      call_.zeroed_bytes = bound_.written_bytes;
    }
  }

 private:
  void read_dimensions() {
    polyphase::read_dimensions(request_, tail_, dimensions_);
    for (int64_t i = 0; i < request_.rank; ++i) {
      Dimension& d = dimensions_[i];
      if (changes_nothing(d, d.step_count)) {
        d.step_count = 0;
        d.weighted = d.first = false;
      }
      if (i >= request_.rank - 2) d.blocks = blocks(i - request_.rank + 2, d.out_size);
    }
  }

  // How many of an axis's outputs are not sums of nothing.
  static double share_of_sums(const Axis& axis) {
    if (axis.taps == nullptr) return 1;
    const int32_t* begin = axis.taps->begin;
    int64_t sums = 0;
    for (int64_t i = 0; i < axis.out_size; ++i) sums += begin[i] != begin[i + 1] ? 1 : 0;
    return static_cast<double>(sums) / static_cast<double>(axis.out_size);
  }

  // Of the last dimension but one (0), and of the last.
  Blocks blocks(int64_t place, int64_t out_size) const {
    const int64_t* given = request_.blocks + 4 * place;
    const Blocks found = {given[0], given[1], given[2], given[3]};
    if (found.size < 0 || (found.size > 0 && (found.together < 1 || out_size % (found.size * found.together) != 0))) {
      throw BadCall{"an axis is not so many whole blocks"};
    }
    return found;
  }

  // An axis that is resized to its own size keeps its pixels, whatever the filter.
  static bool changes_nothing(const Dimension& d, int64_t step_count) {
    if (d.in_size != d.out_size) return false;
    for (int64_t s = 0; s < step_count; ++s) {
      const Step& step = d.steps[s];
      const bool whole = step.begin == 0 && __builtin_isnan(step.end) && (__builtin_isnan(step.scale) || step.scale == 1);
      if (step.kind > Step::kNearest || step.a != d.in_size || !whole) return false;
    }
    return true;
  }

  // Rows that lie wherever they do are what y goes along, or nothing reads them.
  void read_rows() {
    if (call_.y.in_stride < 0) {
      call_.source_by_rows = 1;
      call_.y.in_stride = 0;
    }
    bool others = call_.x.in_stride < 0 || call_.z.in_stride < 0 || call_.in_channel_stride < 0;
    for (int64_t a = 0; a < call_.outer_count; ++a) others = others || call_.outer[a].in_stride < 0;
    if (others) throw TooManyDimensions();
  }

  void read_borders() {
    if (request_.border_size == 0) return;
    bound_.borders.assign(tail_.borders, request_.border_size);
    call_.borders = bound_.borders.data();
    call_.border_stride = request_.border_stride;
    call_.first_stored = request_.first_stored;
    call_.border_bytes = request_.border_bytes;
    call_.stored_border_bytes = request_.stored_border_bytes;
  }

  // A kernel that only moves sees an element as so many bytes, whatever its dtype.
  void elements_as_bytes() {
    for (int64_t i = 0; i < dimensions_.size(); ++i) {
      dimensions_[i].in_stride *= request_.moved_bytes;
      dimensions_[i].out_stride *= request_.moved_bytes;
      dimensions_[i].blocks.inner_stride *= request_.moved_bytes;
      dimensions_[i].blocks.outer_stride *= request_.moved_bytes;
    }
    dimensions_.push_back(Dimension::plain(request_.moved_bytes, 1));
  }

  void fill_call(const Geometry& g) {
    call_.copies = max<int64_t>(request_.copies, 1);
    call_.copy_stride = request_.copy_stride * max<int64_t>(request_.moved_bytes, 1);
    call_.channels = g.pixel.out_size;
    call_.in_channel_stride = g.pixel.in_stride;
    call_.out_channel_stride = g.pixel.out_stride;
    call_.read_channels = call_.channels + (reads_fourth(g) ? 1 : 0);
    call_.x = axis(g.x, call_.channels, call_.read_channels, &call_.row_map);
    call_.y = axis(g.y);
    call_.z = axis(g.z);
    call_.sums_rows_first = g.y.first;
    if (g.z.first || (g.y.first && g.z.weighted)) throw TooManyDimensions();
    call_.outer_count = g.outer.size();
    call_.channel_axis = -1;
    for (int64_t a = 0; a < call_.outer_count; ++a) {
      call_.outer[a] = axis(g.outer[a]);
      if (g.outer[a].channels) call_.channel_axis = a;
    }
    for (int64_t t = 0; t < call_.tensor_count; ++t) {
      Operand& tensor = call_.tensors[t];
      tensor.x_stride = g.x.tensor_strides[t];
      tensor.y_stride = g.y.tensor_strides[t];
      tensor.z_stride = g.z.tensor_strides[t];
      tensor.channel_stride = g.pixel.tensor_strides[t];
      for (int64_t a = 0; a < call_.outer_count; ++a) tensor.outer_strides[a] = g.outer[a].tensor_strides[t];
    }
  }

  // Whether a picture's pixels of four bytes are sampled where they lie, although three are wanted: quicker than to gather
  // these from all that is read, where that is more than what is stored. A picture's last pixel has its fourth byte too; of
  // a tensor nobody knows.
  bool reads_fourth(const Geometry& g) const {
    const bool three_of_four = g.pixel.out_size == 3 && g.pixel.in_stride == 1 && g.x.in_stride == 4;
    return three_of_four && g.y.in_stride == Request::kByRows && bound_.kernel->samples_source != 0 &&
           g.x.out_size <= g.x.in_size;
  }

  // `channels`, `pixel` and `row_map` are for the axis that is read horizontally.
  Axis axis(const Dimension& d, int64_t channels = 0, int64_t pixel = 0, const RowMap** row_map = nullptr) {
    Axis result = {d.in_size, d.out_size, d.in_stride, d.out_stride, nullptr, 1, d.out_size, d.blocks};
    if (!d.mapped()) return result;
    const Sampler* sampler = d.weighted ? call_.sampler : reinterpret_cast<const Sampler*>(request_.mover);
    if (sampler == nullptr) throw BadCall{"an axis is only moved, and there is no sampler for it"};
    const int64_t element_bytes = row_map == nullptr ? 0 : bound_.kernel->element_bytes;
    const bool transposed = request_.transposed != 0;
    const int64_t in_size = transposed ? d.out_size : d.in_size;
    SharedTable& kept = bound_.tables[bound_.table_count++];
    kept = TableCache::instance().get(*sampler, {channels, pixel, element_bytes, in_size, transposed, d.step_count, d.steps});
    if (kept->taps().in_size != d.in_size || kept->taps().out_size != d.out_size) {
      throw BadCall{"an axis's sizes are not those of its map"};
    }
    result.taps = &kept->taps();
    result.most_taps = kept->most_taps();
    result.tap_count = kept->tap_count();
    if (row_map != nullptr) *row_map = kept->row_map();
    return result;
  }

  // Of the source or of the target, whichever has more.
  int64_t most_elements() const {
    int64_t in = 1, out = 1;
    for (int64_t i = 0; i < dimensions_.size(); ++i) {
      in *= dimensions_[i].in_size;
      out *= dimensions_[i].out_size;
    }
    return max(in, out);
  }

  const Request& request_;
  const Tail tail_;
  Bound& bound_;
  MapsCall& call_;
  Dimensions dimensions_;
};

// (batch, channels, spatial...) as (batch, channels, z, y, x); an image has no z.
inline ImageStrides image_strides(const int64_t* strides, int64_t rank) {
  return {strides[0], strides[1], rank == 5 ? strides[2] : 0, strides[rank - 2], strides[rank - 1]};
}

// Rows of fewer points are taken for one: tiles would mostly be empty, and every row begins anew. Longer ones are walked down
// in bands.
constexpr int64_t kShortRowOfPoints = 8 * 32;

// What a grid's output looks like does not matter to its points: short rows of them are one long row, wherever the grid lies.
// So are the rows of any small image. Where results are stored they have to be one row, as all are that we allocate.
inline void take_rows_for_one(WarpCall& call, bool gradients, bool small) {
  if (call.affine || call.formula || call.tensor_count > 0) return;
  if (!small && call.out_size[2] >= kShortRowOfPoints) return;
  const int64_t planes = call.out_size[0], rows = call.out_size[1], length = call.out_size[2];
  ImageStrides& target = call.target_strides;
  const PointRows stored = {rows, length, target.z, target.y, target.x};
  if (!gradients) {
    if (!stored.are_one(planes)) return;
    target.x = stored.row_stride();
  }
  call.points[0] = rows;
  call.points[1] = length;
  call.out_size[0] = call.out_size[1] = 1;
  call.out_size[2] = planes * rows * length;
}

// How many images become one: as many as leave pages to be followed for several rows of a band (`warp/bands.h`), each channel
// where it is read and where it is written; all of them where no such number divides the batch.
inline int64_t images_to_join(int64_t batch, int64_t channels) {
  for (int64_t n = min(batch, kFollowedPages / 4 / channels); n > 1; --n) {
    if (batch % n == 0) return n;
  }
  return batch;
}

// Images of a batch that are warped alike, and follow each other as their channels do, are one image of more channels: its
// positions are found once. But not where channels differ in more than their values. Threads share what is then fewer rows.
inline void join_images(WarpCall& call) {
  const auto follow_each_other = [&](const ImageStrides& s) {
    return call.channels == 1 || s.batch == call.channels * s.channel;
  };
  if (call.batch == 1 || call.coordinate_strides.batch != 0 || call.vector_count > 0 || call.fill_stride != 0) return;
  if (!follow_each_other(call.image_strides) || !follow_each_other(call.target_strides)) return;
  for (int64_t t = 0; t < call.tensor_count; ++t) {
    if (call.tensors[t].outer_strides[0] != 0 || call.tensors[t].channel_stride != 0) return;
  }
  if (call.channels == 1) {
    call.image_strides.channel = call.image_strides.batch;
    call.target_strides.channel = call.target_strides.batch;
  }
  const int64_t joined = images_to_join(call.batch, call.channels);
  call.channels *= joined;
  call.batch /= joined;
  call.image_strides.batch *= joined;
  call.target_strides.batch *= joined;
}

inline void bind_warp(const Request& request, const Tail& tail, Bound& bound) {
  WarpCall& call = bound.call.warp;
  const int64_t rank = request.rank;
  if (rank != 4 && rank != 5) throw BadCall{"a warp of neither an image nor a volume"};
  for (int64_t d = 0; d < rank; ++d) {
    if (request.in_stride[d] < 0) throw BadCall{"a warp of an image that is a list of rows"};
  }
  call.batch = request.in_size[0];
  call.channels = request.in_size[1];
  call.in_size[0] = call.out_size[0] = 1;
  for (int64_t d = 2; d < rank; ++d) {
    call.in_size[d - rank + 3] = request.in_size[d];
    call.out_size[d - rank + 3] = request.out_size[d];
  }
  call.image_strides = image_strides(request.in_stride, rank);
  call.target_strides = image_strides(request.out_stride, rank);
  call.image_gradient_strides = image_strides(request.image_gradient_stride, rank);
  const int64_t* along = request.coordinate_stride;
  call.coordinate_strides = {along[0], along[1], along[2], along[3], along[4]};
  call.affine = request.affine;
  call.formula = request.formula;
  if (request.number_count > 0) {
    bound.numbers.assign(reinterpret_cast<const double*>(tail.numbers), request.number_count);
    call.numbers = bound.numbers.data();
  }
  call.padding = request.padding;
  call.align_corners = request.align_corners;
  call.fill_rule = request.fill_rule;
  if (call.fill_rule != kFillNone) {
    const int64_t needed = request.border_stride == 0 ? bound.kernel->element_bytes : call.channels * request.border_stride;
    if (request.border_size < needed) throw BadCall{"a fill of fewer numbers than the image has channels"};
    bound.borders.assign(tail.borders, request.border_size);
    call.fill = bound.borders.data();
    call.fill_stride = request.border_stride;
  }
  for (int64_t t = 0; t < call.tensor_count; ++t) {
    const ImageStrides of_tensor = image_strides(tail.tensor_strides + t * kMaxDimensions, rank);
    Operand& tensor = call.tensors[t];
    tensor.outer_strides[0] = of_tensor.batch;
    tensor.channel_stride = of_tensor.channel;
    tensor.z_stride = of_tensor.z;
    tensor.y_stride = of_tensor.y;
    tensor.x_stride = of_tensor.x;
  }
  const int64_t pixels = call.out_size[0] * call.out_size[1] * call.out_size[2];
  const bool gradients = request.kind == Request::kWarpGradients;
  bound.buffer_count = gradients ? 5 : 3;
  bound.most_threads = call.batch * call.channels * pixels / kWarpedElementsPerThread;
  if (!gradients && call.out_size[0] * call.out_size[1] >= bound.most_threads) join_images(call);
  take_rows_for_one(call, gradients, bound.most_threads <= 1);
}

// From the first element that is written to the last, where they follow each other; 0 where they do not.
inline int64_t written_bytes(const Request& request) {
  int64_t elements = 1, last = 0;
  for (int64_t d = 0; d < request.rank; ++d) {
    elements *= request.out_size[d];
    last += (request.out_size[d] - 1) * request.out_stride[d];
  }
  return last + 1 == elements ? elements * request.element_bytes : 0;
}

inline void bind(const uint8_t* data, int64_t size, Bound& bound) {
  Request request;
  const Tail tail = read_request(data, size, request);
  bound.kernel = reinterpret_cast<const Kernel*>(request.kernel);
  bound.written_bytes = written_bytes(request);
  KernelCall& call = bound.call.any;
  call.parallel = Threads::run;
  call.vector_count = request.vector_count;
  call.tensor_count = request.tensor_count;
  for (int64_t v = 0; v < call.vector_count; ++v) call.vectors[v].element_bytes = request.vector_bytes[v];
  for (int64_t t = 0; t < call.tensor_count; ++t) call.tensors[t].element_bytes = request.tensor_bytes[t];
  if (request.kind == Request::kMaps) {
    MapsBinder(request, tail, bound).bind();
  } else {
    bind_warp(request, tail, bound);
  }
}

}  // namespace polyphase

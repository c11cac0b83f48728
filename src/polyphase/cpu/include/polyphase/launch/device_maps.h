// A call of axis maps on CUDA, prepared on the host: all of it but addresses. From a request to a kernel, how its work is cut,
// its tables and its parameters; no device is asked.
#pragma once

#include "polyphase/launch/device_batch_ways.h"
#include "polyphase/launch/device_servers.h"
#include "polyphase/launch/dimensions.h"

namespace polyphase::device {

constexpr int64_t kAlignment = 16;  // addresses that torch gives a tensor are multiples of it; those of a view may not be
constexpr int64_t kMostOuter = 6;   // axes that are merely walked along, beside those of rows and planes
constexpr int64_t kLongRow = 256, kMostOfPixel = 4;  // as of the CPU, in bytes and elements

// ---- from tensors' dimensions to the axes of a call

// False where there are more dimensions, or more that are summed over, than a kernel walks along.
inline bool arrange_axes(const Dimensions& dimensions, const Program& program, int64_t tensors, bool in_order, Geometry& found) {
  Dimensions rest = tidy(dimensions, tensors, false);
  if (in_order) {  // rounded between two axes: sums along the last one come first, but in Pillow's pictures, on the CPU
    for (int64_t i = 0; i < dimensions.size(); ++i) {
      if (dimensions[i].first) return false;
    }
    keep_order_of_sums(dimensions, rest);
  }
  const auto mapped = [](const Dimension& d) { return d.mapped(); };
  const auto summed = [](const Dimension& d) { return d.weighted; };
  const int64_t last_mapped = last_place(rest, mapped), long_row = kLongRow / program.in_bytes;
  int64_t sums = 0;
  for (int64_t i = 0; i < rest.size(); ++i) sums += rest[i].weighted ? 1 : 0;
  const auto is_row = [&](const Dimension& d) {
    return !d.channels && (last_mapped < 0 || (sums <= 1 && d.in_size >= long_row));
  };
  if (last_mapped + 1 < rest.size() && !is_row(rest.back())) found.pixel = rest.take(rest.size() - 1);
  const bool takes_tail = last_mapped + 1 < rest.size() && is_row(rest.back());
  const int64_t row = takes_tail ? rest.size() - 1 : last_mapped;
  if (row >= 0) found.x = rest.take(row);
  int64_t y = last_place(rest, summed);
  if (y < 0) y = last_place(rest, [](const Dimension& d) { return !d.channels; });
  if (y >= 0) found.y = rest.take(y);
  const int64_t z = last_place(rest, summed);
  if (z >= 0) found.z = rest.take(z);
  found.outer = rest;
  return rest.size() <= kMostOuter && last_place(rest, summed) < 0;
}

// Few channels that lie side by side in the image, and apart in the output, are a pixel's, which is read once.
inline void take_pixel(Geometry& geometry) {
  int64_t found = -1, count = 0;
  for (int64_t i = 0; i < geometry.outer.size(); ++i) {
    const Dimension& d = geometry.outer[i];
    if (d.mapped() || d.in_stride != 1 || d.in_size < 2 || d.in_size > kMostOfPixel) continue;
    found = i;
    ++count;
  }
  if (geometry.pixel.in_size > 1 || count != 1 || geometry.x.in_stride != geometry.outer[found].in_size) return;
  geometry.pixel = geometry.outer.take(found);
}

template <class Function>
void each_axis(Geometry& geometry, const Function& function) {
  function(geometry.x);
  function(geometry.y);
  function(geometry.z);
  for (int64_t i = 0; i < geometry.outer.size(); ++i) function(geometry.outer[i]);
}

// Values that are only moved, several of a pixel as one where they lie together: the bytes of an element.
inline int64_t widen_elements(Geometry& geometry, int64_t element_bytes, int64_t most) {
  Dimension& pixel = geometry.pixel;
  if (pixel.in_stride != 1 || pixel.out_stride != 1) return element_bytes;
  int64_t count = most / element_bytes;
  const auto divides = [&] {
    bool all = pixel.in_size % count == 0;
    each_axis(geometry, [&](Dimension& d) { all = all && d.in_stride % count == 0 && d.out_stride % count == 0; });
    return all;
  };
  while (count > 1 && !divides()) count /= 2;
  each_axis(geometry, [&](Dimension& d) {
    d.in_stride /= count;
    d.out_stride /= count;
  });
  pixel.in_size /= count;
  pixel.out_size /= count;
  return element_bytes * count;
}

// What merely goes along an axis, forwards or backwards, needs no table: how much later the source then begins.
inline int64_t go_by_stride(Dimension& d, AxisTable& table) {
  int64_t begin, step;
  if (!table.goes_along(begin, step)) return 0;
  const int64_t origin = begin * d.in_stride;
  d.in_stride *= step;
  table = AxisTable();
  return origin;
}

// ---- a call before its way is chosen

// Which tables are made on the device, where they can be: none, or those of many calls, whose kernel asks the tables of bytes for
// their precision, or those of one, whose kernel is given it.
enum class Makes { kNone, kForMany, kForOne };

// Which addresses are multiples besides.
struct Terms {
  bool source_aligned, target_aligned;
  Makes makes;
};

class Arranged {
 public:
  Arranged(const uint8_t* request, int64_t size, const Program& program, const Terms& terms)
      : program_(program), terms_(terms) {
    bytes_.assign(request, size);
    tail_ = read_request(bytes_.data(), size, request_);
    element_bytes_ = program.in_bytes;
    arrange();
    make_tables();
  }
  Arranged(const Arranged&) = delete;
  Arranged& operator=(const Arranged&) = delete;

  Case one() const {
    const int64_t to_bytes = program_.moves != 0 ? element_bytes_ : program_.out_bytes;
    return {program_,       geometry_,
            x_,             y_,
            z_,             bordered_,
            element_bytes_, to_bytes,
            terms_.source_aligned ? kAlignment : program_.in_bytes, terms_.target_aligned ? kAlignment : program_.out_bytes};
  }
  bool reads_tensors() const { return request_.tensor_count > 0; }
  bool makes_tables() const {
    bool makes = x_.made() || y_.made() || z_.made();
    for (const AxisTable& one : outer_) makes = makes || one.made();
    return makes;
  }
  // With the axes that the call has.
  Way of_call(Way way) const {
    way.outer = outer_count();
    return way;
  }
  const Buffer<uint8_t>& bytes() const { return bytes_; }  // of the request
  const Request& request() const { return request_; }
  const Tail& tail() const { return tail_; }
  const Program& program() const { return program_; }
  const Geometry& geometry() const { return geometry_; }
  const AxisTable& x() const { return x_; }
  const AxisTable& y() const { return y_; }
  const AxisTable& z() const { return z_; }
  const AxisTable& outer(int64_t i) const { return outer_[i]; }
  int64_t outer_count() const { return max<int64_t>(geometry_.outer.size(), 1); }
  int64_t source_origin() const { return source_origin_; }
  // Whether rows and columns are all that is mapped, along y and x, and nothing else depends on their sizes.
  bool maps_rows_and_columns() const {
    const int64_t first = request_.last_step[0];
    const bool two = request_.map_count == 2 && geometry_.y.mapped() && geometry_.x.mapped();
    return two && geometry_.y.steps == tail_.steps && geometry_.x.steps == tail_.steps + first && outer_count() == 1 &&
           geometry_.z.out_size == 1 && request_.tensor_count == 0 && request_.border_size == 0;
  }

 private:
  void arrange() {
    Dimensions dimensions;
    read_dimensions(request_, tail_, dimensions);
    const bool bytes = program_.arithmetic == static_cast<int64_t>(device_tables::Arithmetic::kBytes);
    if (!arrange_axes(dimensions, program_, request_.tensor_count, bytes, geometry_)) throw TooManyDimensions();
    if (program_.weighted != 0 && program_.sums_bytes != 0) take_pixel(geometry_);
    const bool aligned = terms_.source_aligned && terms_.target_aligned;
    if (program_.moves != 0 && aligned && request_.border_size == 0) {  // values of borders are elements
      element_bytes_ = widen_elements(geometry_, element_bytes_, kAlignment);
    }
  }

  void make_tables() {
    x_ = table(geometry_.x);
    y_ = table(geometry_.y);
    z_ = table(geometry_.z);
    bordered_ = x_.bordered() || y_.bordered() || z_.bordered();
    for (int64_t i = 0; i < geometry_.outer.size(); ++i) {
      outer_[i] = table(geometry_.outer[i]);
      bordered_ = bordered_ || outer_[i].bordered();
    }
    if (program_.weighted != 0) return;
    source_origin_ = go_by_stride(geometry_.y, y_) + go_by_stride(geometry_.z, z_);
    for (int64_t i = 0; i < geometry_.outer.size(); ++i) source_origin_ += go_by_stride(geometry_.outer[i], outer_[i]);
  }
  AxisTable table(const Dimension& d) const {
    if (!d.mapped()) return AxisTable();
    const bool transposed = request_.transposed != 0, in_bytes = program_.arithmetic == 0, in_double = program_.arithmetic == 2;
    if (transposed && in_bytes && program_.weighted != 0) throw BadCall{"an adjoint of sums that are rounded"};
    TapRecipe recipe;
    const bool of_one = terms_.makes == Makes::kForOne;
    const bool may_make = terms_.makes != Makes::kNone && !transposed && !in_double;
    if (may_make && recipe_of(d.steps, d.step_count, d.in_size, in_bytes, of_one && !in_bytes, recipe)) {
      const bool told = in_bytes && of_one;
      return AxisTable::on_device(recipe, told ? device_tables::precision_of(d.steps, d.step_count, d.in_size) : -1);
    }
    return AxisTable::on_host({0, 0, 0, transposed ? d.out_size : d.in_size, transposed, d.step_count, d.steps}, program_.weighing());
  }

  Buffer<uint8_t> bytes_;
  const Program program_;
  const Terms terms_;
  Request request_;
  Tail tail_;
  Geometry geometry_;
  AxisTable x_, y_, z_, outer_[kMostOuter];
  int64_t element_bytes_, source_origin_ = 0;
  bool bordered_ = false;
};

// Of an arranged call.
struct WaysOf {
  explicit WaysOf(const Arranged& call) : one(call.one()), ways(one, call.reads_tensors()) {}
  WaysOf(const WaysOf&) = delete;

  // Whether a call sums as it would by tables from the host, which may have fewer taps: all but kShrink sum in one order.
  bool order_is_known(const Way& own) const {
    if (one.program.sums_bytes != 0) return true;
    const Case fewest = one.of_fewest_taps();
    const Way other = Ways(fewest, ways.reads_tensors()).own();
    const bool known = !own.is(Kernel::kGeneral) && !other.is(Kernel::kGeneral);
    return known && own.is(Kernel::kShrink) == other.is(Kernel::kShrink);
  }

  const Case one;
  const Ways ways;
};

// ---- and by a way

// `Axis` of call.h.
struct AxisFields {
  int64_t in_size, out_size, in_stride, out_stride, first, index, weight, border, taps, precision;
};
static_assert(sizeof(AxisFields) == 80);

// Of what a launch uploads: where the call has its address, in bytes.
struct Part {
  const void* data;
  int64_t size, at;
};
// Of what is made on the device: where the call has the addresses of its firsts and its weights.
struct Making {
  TapRecipe recipe;
  int64_t first_at, weight_at;
};

class Prepared {
 public:
  // instead: the way whose bits the result is to have.
  Prepared(const Arranged& call, const Way& way, const Way& instead)
      : call_(call), way_(way), geometry_(call.geometry()), x_(&call.x()), y_(&call.y()) {
    const Case one = call.one();
    cut_ = Cutter(one, call.reads_tensors()).cut(way);
    if (way.is(Kernel::kMoved)) {
      move_values();
    } else if (way.is(Kernel::kByteTiles)) {
      use_windows();
      TileCut cut;
      int64_t matrices, shared_bytes;
      if (!Cutter(one, call.reads_tensors()).cut_into_tiles(cut, matrices, shared_bytes)) refuse_windows();
      set(x_, own_x_, x_->as_matrices(matrices, true));
      set(y_, own_y_, y_->as_matrices(matrices, false));
    } else if (!way.is(Kernel::kGeneral)) {
      sum_windows();
    } else if (instead.is(Kernel::kShrink)) {  // which sums down columns before it sums along rows
      use_windows();
      cut_.strip = 1;
    }
    fill();
  }
  Prepared(const Prepared&) = delete;
  Prepared& operator=(const Prepared&) = delete;

  const Cut& cut() const { return cut_; }
  const Buffer<int64_t>& call() const { return fields_; }  // its addresses are 0
  const Buffer<Part>& parts() const { return parts_; }
  const Buffer<Making>& makings() const { return makings_; }
  int64_t table_count() const { return table_count_; }
  // Where the call has addresses of operands, in bytes.
  int64_t vectors_at() const { return vectors_at_; }
  int64_t tensors_at() const { return vectors_at_ + 8 * max<int64_t>(call_.request().vector_count, 1); }

 private:
  static void set(const AxisTable*& used, AxisTable& own, AxisTable&& table) {
    own = move(table);
    used = &own;
  }

  // Of a way's kernel, as its template says.
  bool computes_places() const { return way_.constants[2] != 0; }
  int64_t columns_of_runs() const { return way_.constants[3] != 0 ? way_.constants[0] : 0; }

  void move_values() {
    if (computes_places()) {
      int64_t begin, step;
      if (!x_->goes_along(begin, step)) return;
      row_origin_ = begin * geometry_.x.in_stride;
      geometry_.x.in_stride *= step;
      x_ = &none_;
      return;
    }
    const Dimension &x = geometry_.x, &pixel = geometry_.pixel;
    const device_tables::RowOffsets row = {x.out_size, x.in_stride, pixel.out_size, pixel.in_stride, columns_of_runs()};
    const HostTable& host = x_->host();
    row.fill(x_->there() ? host.first.data() : nullptr, x_->bordered() ? host.border.data() : nullptr, row_offsets_);
    has_row_offsets_ = true;
    x_ = &none_;
  }

  void use_windows() {
    as_windows(x_, own_x_, geometry_.x);
    as_windows(y_, own_y_, geometry_.y);
  }
  void as_windows(const AxisTable*& used, AxisTable& own, const Dimension& d) const {
    const Weighing weighing = call_.program().weighing();
    if (!used->there()) {
      set(used, own, AxisTable::identity(d.in_size, weighing));
    } else if (!used->has_weights()) {
      set(used, own, used->weighted(weighing));
    }
  }

  void sum_windows() {
    use_windows();
    const int64_t kx = taps_along(0, x_->taps()), ky = taps_along(1, y_->taps());
    if (kx != x_->taps()) set(x_, own_x_, x_->widened(kx));
    if (ky != y_->taps()) set(y_, own_y_, y_->widened(ky));
    if (way_.is(Kernel::kDirect)) {
      set(y_, own_y_, y_->widened(way_.constants[1], way_.constants[4]));
    } else if (y_->only_descends()) {
      turn(geometry_.y, y_, own_y_);
    }
    const bool columns_ascend = way_.is(Kernel::kShrink) || way_.is(Kernel::kByteRing);
    if (columns_ascend && x_->only_descends()) turn(geometry_.x, x_, own_x_);
    if (way_.is(Kernel::kByteRing)) set(x_, own_x_, x_->in_fours(way_.constants[0]));
    if (way_.is(Kernel::kRing) && way_.constants[4] >= 0 && !x_->made()) {
      InStep found;
      AxisTable table;
      if (!x_->lies_in_step(way_.constants[2], found, &table)) refuse_windows();
      set(x_, own_x_, move(table));
    }
  }
  // Of windows, as the way's kernel has them: along x (0) or y (1).
  int64_t taps_along(int axis, int64_t taps) const {
    const bool stages = way_.is(Kernel::kByteStages);
    if (stages && max(x_->taps(), y_->taps()) <= kFewTaps) return kFewTaps;
    const bool of_both = stages || way_.is(Kernel::kRing) || way_.is(Kernel::kByteWalk) || way_.is(Kernel::kByteStage);
    const bool of_one = way_.is(axis == 0 ? Kernel::kDirect : Kernel::kByteRing);
    return of_both || of_one ? way_.constants[axis] : taps;
  }
  // An axis whose outputs are walked along from the last to the first.
  void turn(Dimension& d, const AxisTable*& used, AxisTable& own) {
    target_origin_ += (d.out_size - 1) * d.out_stride;
    d.out_stride = -d.out_stride;
    for (int64_t t = 0; t < call_.request().tensor_count; ++t) {
      tensor_origins_[t] += (d.out_size - 1) * d.tensor_strides[t];
      d.tensor_strides[t] = -d.tensor_strides[t];
    }
    set(used, own, used->reversed());
  }

  // ---- the call, as `MapsCall` of call.h has it

  void put(int64_t number) { fields_.push_back(number); }
  void put_part(const void* data, int64_t size) {
    parts_.push_back({data, size, 8 * fields_.size()});
    put(0);
  }
  template <class T>
  void put_part(const Buffer<T>& buffer, bool there) {
    if (there) return put_part(buffer.data(), buffer.size() * static_cast<int64_t>(sizeof(T)));
    put(0);
  }
  void put_axis(const Dimension& d, const AxisTable& table) {
    put(d.in_size);
    put(d.out_size);
    put(d.in_stride);
    put(d.out_stride);
    table_count_ += table.on_the_host() ? 1 : 0;
    if (table.made()) {
      const int64_t first_at = 8 * fields_.size();
      makings_.push_back({table.recipe(), first_at, first_at + 16});
      for (int i = 0; i < 4; ++i) put(0);
    } else {
      const HostTable& host = table.host();
      put_part(host.first, table.there());
      put_part(host.index, table.listed());
      put_part(host.weight, table.there() && table.has_weights());
      put_part(host.border, table.bordered());
    }
    put(table.there() ? table.taps() : 1);
    put(table.there() ? table.precision() : 0);
  }

  void fill() {
    const Request& request = call_.request();
    const Dimensions& outer = geometry_.outer;
    int64_t channel_axis = -1;
    for (int64_t i = outer.size() - 1; i >= 0; --i) channel_axis = outer[i].channels ? i : channel_axis;
    fields_.reserve(160);
    const int64_t head[] = {0,           0,           planes_of(geometry_), geometry_.pixel.out_size, geometry_.pixel.in_stride,
                            geometry_.pixel.out_stride, target_origin_, call_.source_origin(), channel_axis, cut_.tiles,
                            cut_.strips, cut_.tile,   cut_.strip,           cut_.span,                cut_.staged_rows};
    for (const int64_t one : head) put(one);
    put_axis(geometry_.x, *x_);
    put_axis(geometry_.y, *y_);
    for (int64_t i = 0; i < outer.size(); ++i) put_axis(outer[i], call_.outer(i));
    if (outer.size() == 0) put_axis(Dimension::plain(), none_);
    put_part(row_offsets_, has_row_offsets_);
    put(row_origin_);
    put_axis(geometry_.z, call_.z());
    if (request.border_size > 0) {
      put_part(call_.tail().borders, request.border_size);
    } else {
      put(0);
    }
    put(request.border_stride);
    put(request.first_stored);
    const int64_t tensors = request.tensor_count;
    vectors_at_ = 8 * fields_.size();
    for (int64_t i = 0; i < max<int64_t>(request.vector_count, 1) + max<int64_t>(tensors, 1); ++i) put(0);
    for (int64_t t = 0; t < max<int64_t>(tensors, 1); ++t) put_tensor(t, t < tensors);
  }
  // `TensorStrides` of call.h.
  void put_tensor(int64_t t, bool there) {
    const Dimensions& outer = geometry_.outer;
    put(there ? tensor_origins_[t] : 0);
    for (int64_t i = 0; i < max<int64_t>(outer.size(), 1); ++i) put(there && i < outer.size() ? outer[i].tensor_strides[t] : 0);
    const Dimension* const others[] = {&geometry_.z, &geometry_.y, &geometry_.x, &geometry_.pixel};
    for (const Dimension* d : others) put(there ? d->tensor_strides[t] : 0);
  }

  const Arranged& call_;
  const Way way_;
  Cut cut_;
  Geometry geometry_;
  AxisTable own_x_, own_y_;
  const AxisTable none_;
  const AxisTable *x_, *y_;
  Firsts row_offsets_;
  bool has_row_offsets_ = false;
  int64_t row_origin_ = 0, target_origin_ = 0, tensor_origins_[kMaxOperands] = {}, table_count_ = 0, vectors_at_ = 0;
  Buffer<int64_t> fields_;
  Buffer<Part> parts_;
  Buffer<Making> makings_;
};

}  // namespace polyphase::device

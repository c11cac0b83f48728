// What Python asks the launcher to bind: one record for axis maps, whole programs, warps and their gradients.
//
// `records/records.py` packs it, and describes every field; where the two differ, the launcher does not compile.
#pragma once

#include "polyphase/core/abi.h"

namespace polyphase {

constexpr int kMaxDimensions = 16;

// What Python should never hand over.
struct BadCall {
  const char* message;
};

// Every field is eight bytes, or an array of such. Sizes and strides are in elements, one for each dimension. Behind the
// record follow the steps of all maps, the values of constant borders, the numbers of a formula (doubles), and the strides
// of tensor operands, kMaxDimensions of each.
struct Request {
  enum Kind : int64_t { kMaps, kWarp, kWarpGradients };
  // A stride of the image: along this dimension it is a list of where rows begin, `layout.BY_ROWS`.
  static constexpr int64_t kByRows = -1;

  // Of the tensors.
  int64_t rank;
  int64_t in_size[kMaxDimensions];
  int64_t in_stride[kMaxDimensions];
  int64_t out_size[kMaxDimensions];
  int64_t out_stride[kMaxDimensions];

  int64_t blocks[8];    // of maps: the Blocks of the last two dimensions
  int64_t copies;       // of what is written, so far apart; 0 is 1
  int64_t copy_stride;

  int64_t coordinate_stride[5];  // of warps, as CoordinateStrides has them
  int64_t image_gradient_stride[kMaxDimensions];

  int64_t vector_count;
  int64_t tensor_count;
  int64_t vector_bytes[kMaxOperands];  // of an element
  int64_t tensor_bytes[kMaxOperands];
  int64_t channel_dimension;  // the one that vectors go along

  // Of the program.
  int64_t kernel;   // addresses of what libraries export: a Kernel,
  int64_t sampler;  // the Sampler of weighted axes,
  int64_t mover;    // and that of axes along which values only move; 0 where there is none
  int64_t kind;

  int64_t element_bytes;  // of what is written; 0 of gradients

  int64_t transposed;
  int64_t moved_bytes;  // of an element that is only moved; 0 where values are computed
  int64_t map_count;    // of the last dimensions
  int64_t last_step[kMaxDimensions];  // the steps of map m end with this number
  int64_t border_size;  // bytes of all borders together
  int64_t border_stride;
  int64_t first_stored;
  int64_t border_bytes;
  int64_t stored_border_bytes;

  int64_t affine;
  int64_t formula;
  int64_t number_count;
  int64_t padding;
  int64_t align_corners;
  int64_t fill_rule;  // a FillRule; the fill is told as borders are, its stride 0 where one is for all channels
};

// What a request for tensors of other sizes follows from, besides one that was made (`any_size.h`). As above.
struct AnySize {
  enum Order : int64_t { kPreserve, kContiguous, kChannelsLast };

  int64_t order;          // of the output in memory
  int64_t keeps_strides;  // where the image's are dense: flips and crops
  int64_t longest;        // axis that is mapped
  int64_t most_warped;    // elements that a plane of a warped image extends over
  int64_t most_bytes;     // of an output that is sure to be had
  int64_t given;          // sizes that each call is given: of all steps, one of each map; 0 where the request has them
};

}  // namespace polyphase

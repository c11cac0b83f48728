// Tables of a call where a device has them: at addresses, which the call is told.
#pragma once

#include <cstring>

#include "polyphase/launch/device_maps.h"

namespace polyphase::device {

// The tables of a call as they lie on a device, one behind the other, each from a multiple of 16 on: those that are copied,
// then those that are made.
class TablesOnDevice {
 public:
  explicit TablesOnDevice(const Prepared& call) : call_(call) {
    int64_t copied = 0;
    for (const Part& part : call.parts()) copied += room_of(part);
    data_.resize_unset(copied);
    uint8_t* to = data_.data();
    for (const Part& part : call.parts()) {
      if (part.size > 0) std::memcpy(to, part.data, part.size);
      std::memset(to + part.size, 0, room_of(part) - part.size);
      to += room_of(part);
    }
    size_ = copied;
    for (const Making& making : call.makings()) size_ += table_bytes(making.recipe);
  }

  int64_t size() const { return size_; }
  const Buffer<uint8_t>& data() const { return data_; }
  bool makes() const { return call_.makings().size() > 0; }

  // Writes addresses into a call's bytes; what makes tables.
  TapsCall place(int64_t address, uint8_t* call) const {
    for (const Part& part : call_.parts()) {
      std::memcpy(call + part.at, &address, sizeof(address));
      address += room_of(part);
    }
    TapsCall made{};
    for (const Making& making : call_.makings()) {
      TapRecipe& recipe = made.few[made.count++] = making.recipe;
      device::place(recipe, address);
      address += table_bytes(recipe);
      std::memcpy(call + making.first_at, &recipe.first, sizeof(recipe.first));
      std::memcpy(call + making.weight_at, &recipe.weight, sizeof(recipe.weight));
    }
    return made;
  }

 private:
  static int64_t room_of(const Part& part) { return max<int64_t>(round_up(part.size), 16); }

  const Prepared& call_;
  Buffer<uint8_t> data_;
  int64_t size_;
};

}  // namespace polyphase::device

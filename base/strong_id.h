// Numbers that name things: ids of unlike things do not convert into each other, nor into counts.
#pragma once

#include <compare>
#include <cstdint>
#include <ostream>
#include <utility>

namespace skein {

// `Tag` tells the ids of one kind of thing from those of another. 0 unless it is given a value.
template <typename Tag>
class StrongId {
 public:
  constexpr StrongId() = default;
  constexpr explicit StrongId(uint64_t value) : value_(value) {}

  constexpr uint64_t value() const { return value_; }
  // The next id of a counter.
  constexpr StrongId& operator++() {
    ++value_;
    return *this;
  }

  friend constexpr auto operator<=>(StrongId, StrongId) = default;
  template <typename H>
  friend H AbslHashValue(H h, StrongId id) {
    return H::combine(std::move(h), id.value_);
  }
  friend std::ostream& operator<<(std::ostream& out, StrongId id) { return out << id.value_; }

 private:
  uint64_t value_ = 0;
};

}  // namespace skein

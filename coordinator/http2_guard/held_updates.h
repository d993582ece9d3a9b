// WINDOW_UPDATE frames that wait for others to go along with. gRPC sends two for each message that
// it has read, in either direction, though its window would last for a hundred more; each cost a
// wake of the other end. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/time/time.h"

namespace skein::coordinator {

class HeldUpdates {
 public:
  // They are to go on within this time, whatever they say.
  static constexpr absl::Duration kLongest = absl::Milliseconds(20);

  bool empty() const { return bytes_.empty(); }
  // Reads a part of the payload of SETTINGS on its way: who has small windows waits for updates.
  void ReadSettings(std::string_view part);
  // Parts of frames, in their order.
  void Hold(std::string_view part) { bytes_.append(part); }
  // A frame is whole. Whether they are to go on at once.
  bool EndFrame();
  void Release(std::string& out);

 private:
  std::string bytes_;
  uint64_t credit_ = 0;  // what they give the other end, in bytes
  bool has_small_windows_ = false;
  std::array<uint8_t, 6> setting_ = {};
  size_t setting_size_ = 0;
};

}  // namespace skein::coordinator

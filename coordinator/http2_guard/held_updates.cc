#include "coordinator/http2_guard/held_updates.h"

namespace skein::coordinator {
namespace {

// An eighth of HTTP/2's first window: nobody runs out of it for what is held.
constexpr uint64_t kMostCredit = 8 << 10;
constexpr size_t kMostBytes = 2 << 10;
constexpr uint32_t kSmallWindow = 4 * kMostCredit;
constexpr uint32_t kInitialWindowSize = 4;  // a setting's number

uint32_t Number(const uint8_t* bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
}

}  // namespace

void HeldUpdates::ReadSettings(std::string_view part) {
  for (const char byte : part) {
    setting_[setting_size_++] = static_cast<uint8_t>(byte);
    if (setting_size_ < setting_.size()) continue;
    setting_size_ = 0;
    if (setting_[0] == 0 && setting_[1] == kInitialWindowSize) {
      has_small_windows_ = Number(&setting_[2]) < kSmallWindow;
    }
  }
}

bool HeldUpdates::EndFrame() {
  if (has_small_windows_ || bytes_.size() < 4 || bytes_.size() > kMostBytes) return true;
  credit_ += Number(reinterpret_cast<const uint8_t*>(bytes_.data()) + bytes_.size() - 4);
  return credit_ >= kMostCredit;
}

void HeldUpdates::Release(std::string& out) {
  out.append(bytes_);
  bytes_.clear();
  credit_ = 0;
}

}  // namespace skein::coordinator

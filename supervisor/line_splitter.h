// A stream of bytes as lines.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace skein::supervisor {

// Hands over each line without its newline. A line that is longer than kMaxBytes comes in pieces.
class LineSplitter {
 public:
  static constexpr size_t kMaxBytes = size_t{16} << 10;

  explicit LineSplitter(std::function<void(std::string_view)> take) : take_(std::move(take)) {}

  void Add(std::string_view bytes) {
    while (!bytes.empty()) {
      const size_t end = bytes.find('\n');
      const size_t room = kMaxBytes - begun_.size();
      const size_t taken = std::min({end, room, bytes.size()});
      begun_.append(bytes.substr(0, taken));
      bytes.remove_prefix(taken);
      if (end != taken && begun_.size() < kMaxBytes) return;
      if (end == taken) bytes.remove_prefix(1);
      HandOver();
    }
  }

  // The stream is at its end: what was begun is a line.
  void Finish() {
    if (!begun_.empty()) HandOver();
  }

 private:
  void HandOver() {
    take_(begun_);
    begun_.clear();
  }

  const std::function<void(std::string_view)> take_;
  std::string begun_;
};

}  // namespace skein::supervisor

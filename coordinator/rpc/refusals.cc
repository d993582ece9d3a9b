#include "coordinator/rpc/refusals.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "spdlog/spdlog.h"

namespace skein::coordinator {
namespace {

constexpr int kMostLines = 10;       // of one reason in kWindow
constexpr size_t kMostReasons = 50;  // OpenSSL has no more that matter
constexpr absl::Duration kWindow = absl::Seconds(10);

}  // namespace

void Refusals::Say(const std::string& reason, const std::string& line, absl::Time now) {
  int64_t unsaid = 0;
  {
    MutexLock lock(&mutex_);
    if (now >= until_) {
      until_ = now + kWindow;
      lines_.clear();
    }
    if (lines_.size() > kMostReasons || lines_[reason] == kMostLines) {
      ++unsaid_;
      return;
    }
    ++lines_[reason];
    unsaid = std::exchange(unsaid_, 0);
  }
  spdlog::warn("{}{}", line, unsaid == 0 ? "" : absl::StrCat("; ", unsaid, " others before it"));
}

}  // namespace skein::coordinator

#include "kernels/host/masks.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace skein::kernels {

void TokenMasks::Set(int batch, int32_t slot, absl::Span<const uint32_t> bits) {
  MutexLock lock(&mutex_);
  if (slot < 0 || slot >= static_cast<int32_t>(masks_[batch].size())) {
    failed_.Update(absl::InvalidArgumentError(absl::StrCat("a mask for slot ", slot)));
    return changed_.NotifyAll();
  }
  Mask& mask = masks_[batch][slot];
  if (mask.set) {  // draws may be reading it
    failed_.Update(absl::InvalidArgumentError(absl::StrCat("a second mask for slot ", slot)));
    return changed_.NotifyAll();
  }
  mask.bits.assign(bits.begin(), bits.end());
  mask.set = true;
  changed_.NotifyAll();
}

absl::StatusOr<absl::Span<const uint32_t>> TokenMasks::Await(
    int batch, int32_t slot, absl::FunctionRef<absl::Status()> meanwhile) {
  // Earlier sends are helped on about as often as between layers.
  constexpr std::chrono::milliseconds kMeanwhile(1);
  while (true) {
    {
      MutexLock lock(&mutex_);
      const auto until = std::chrono::steady_clock::now() + kMeanwhile;
      const Mask& mask = masks_[batch][slot];
      while (failed_.ok() && !mask.set && changed_.WaitUntil(&mutex_, until)) {
      }
      SKEIN_RETURN_IF_ERROR(failed_);
      if (mask.set) return absl::MakeConstSpan(mask.bits);
    }
    SKEIN_RETURN_IF_ERROR(meanwhile());
  }
}

void TokenMasks::Clear(int batch) {
  MutexLock lock(&mutex_);
  for (Mask& mask : masks_[batch]) mask.set = false;
}

void TokenMasks::Fail(const absl::Status& why) {
  MutexLock lock(&mutex_);
  failed_.Update(why);
  changed_.NotifyAll();
}

}  // namespace skein::kernels
